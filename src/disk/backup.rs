//! Copies a file while it is in use. The copy has another name until it is whole, so that one that was interrupted is
//! taken for no copy.

use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use rusqlite::{Connection, OpenFlags};
use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};

use super::{
    OpenError,
    beside::beside,
    open::use_log,
    rescue::{ReadOnly, read_only},
};

/// What SQLite would take for a part of a copy.
const COMPANIONS: [&str; 3] = ["-journal", "-wal", "-shm"];
const EXISTS: &str = "it exists, and nothing is overwritten";

/// Writes a copy of a file, which may be in use, as it is at one moment. A file that lacks commits or pages is not
/// copied, because the copy would not show that.
///
/// # Errors
/// Says why there is no copy.
pub fn backup(path: &Path, target: &Path) -> Result<(), OpenError> {
    let wrong = |why: String| OpenError::new(path, why);
    let ReadOnly { connection: source, damages, .. } = read_only(path).map_err(wrong)?;
    if !damages.is_empty() {
        let why = format!("{}; `taskgate store export FILE` writes what is there", damages.join("; "));
        return Err(OpenError::of_copy(path, target, why));
    }
    let made = |error: String| OpenError::of_copy(path, target, error);
    // SQLite would read a name such as "file:copy" as a URI.
    let target = &std::path::absolute(target).map_err(|error| made(error.to_string()))?;
    let part = beside(target, ".partial");
    let part_text = part.to_str().ok_or_else(|| made("its path is not UTF-8 text".to_owned()))?;
    is_free(target, &part).map_err(made)?;
    // SQLite fills an empty file, and would make one that everyone can read.
    let created = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part);
    created.map_err(|error| made(not_created(&error)))?;
    let copied = source.execute("VACUUM INTO ?1", [part_text]).map_err(Into::into).and_then(|_| finish(&part));
    copied.and_then(|()| give_name(&part, target)).map_err(|error| {
        for suffix in COMPANIONS.into_iter().chain([""]) {
            let _ = fs::remove_file(beside(&part, suffix));
        }
        made(error.to_string())
    })?;
    let folder = target.parent().map_or(Ok(()), sync);
    folder.map_err(|error| {
        let target = target.display();
        wrong(format!(
            "the copy at \"{target}\" is whole, but its folder cannot be synced, so that it may be lost: {error}"
        ))
    })
}

/// Returns what the system says of a copy that it does not let begin, and what to do about it.
fn not_created(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied
        | ErrorKind::ReadOnlyFilesystem
        | ErrorKind::NotFound
        | ErrorKind::NotADirectory => {
            format!("{error}; name a TARGET in a folder that is there and in which you may write")
        }
        _ => error.to_string(),
    }
}

/// Says so where something stands at the names that the copy needs.
fn is_free(target: &Path, part: &Path) -> Result<(), String> {
    let is_there = |path: &Path| path.symlink_metadata().is_ok();
    if is_there(target) {
        return Err(EXISTS.to_owned());
    }
    let of_target = COMPANIONS.into_iter().chain(["-mark"]).map(|suffix| beside(target, suffix));
    if let Some(left) = of_target.into_iter().find(|path| is_there(path)) {
        return Err(format!(
            "\"{}\" is left of another file, and would be taken for a part of it; move it away",
            left.display()
        ));
    }
    let of_part = [""].into_iter().chain(COMPANIONS).map(|suffix| beside(part, suffix));
    of_part.into_iter().find(|path| is_there(path)).map_or(Ok(()), |left| {
        let left = left.display();
        Err(format!("\"{left}\" exists: another backup is writing it, or one was interrupted; remove it if none runs"))
    })
}

/// Makes a copy one that a start takes, and sees that it is on the disk.
fn finish(part: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let connection = Connection::open_with_flags(part, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    use_log(&connection)?;
    connection.close().map_err(|(_, error)| error)?;
    Ok(sync(part)?)
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Gives a whole copy its name, which something else may have got meanwhile.
fn give_name(part: &Path, target: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let named = match renameat_with(CWD, part, CWD, target, RenameFlags::NOREPLACE) {
        Err(Errno::EXIST) => return Err(EXISTS.into()),
        // Some file systems cannot.
        Err(_) => File::create_new(target).and_then(|_| {
            fs::rename(part, target).inspect_err(|_| {
                let _ = fs::remove_file(target);
            })
        }),
        Ok(()) => Ok(()),
    };
    named.map_err(|error| if error.kind() == ErrorKind::AlreadyExists { EXISTS.into() } else { error.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_takes_no_copy_is_not_taken_for_that_of_the_store() {
        for kind in [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem] {
            let said = not_created(&kind.into());
            assert!(said.contains("name a TARGET in a folder") && !said.contains("the user of taskgate"), "{said}");
        }
    }

    #[test]
    fn a_name_that_something_has_got_meanwhile_is_left_to_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (part, target) = (folder.path().join("copy.partial"), folder.path().join("copy"));
        fs::write(&part, "whole").and_then(|()| fs::write(&target, "other")).expect("room");
        assert_eq!(give_name(&part, &target).map_err(|error| error.to_string()), Err(EXISTS.to_owned()));
        assert_eq!(fs::read(&target).expect("there"), b"other");
        fs::remove_file(&target).expect("there");
        give_name(&part, &target).expect("free");
        assert_eq!(fs::read(&target).expect("there"), b"whole");
        assert!(!part.exists());
    }
}
