//! The names of the files that stand beside the file.

use std::path::{Path, PathBuf};

/// Returns the path of a file that stands beside another one.
pub(super) fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}
