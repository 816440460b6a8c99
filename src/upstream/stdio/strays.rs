//! Kills processes that a child has started and that have left its process group, such as browsers and daemons.
//!
//! They are recognised by a variable that each child gets and that its descendants inherit. This works on Linux only:
//! elsewhere there is no `/proc`.

use std::{fs, time::Duration};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The variable that marks a child and its descendants.
pub(super) const MARK: &str = "TASKGATE_CHILD";
/// How often to search: a process may start another one during a search.
const ROUNDS: usize = 100;
/// The pause between two searches, in which killed processes can end.
const PAUSE: Duration = Duration::from_millis(5);

/// Kills every process with one of these marks. Blocks for some milliseconds; gives up after [`ROUNDS`].
pub(super) fn kill(marks: &[String]) {
    let marks: Vec<_> = marks.iter().map(|mark| format!("{MARK}={mark}").into_bytes()).collect();
    for _ in 0..ROUNDS {
        let found: Vec<_> = processes().filter(|pid| is_marked(*pid, &marks)).collect();
        if found.is_empty() {
            return;
        }
        for pid in found {
            // The descriptor makes sure that the signal reaches the process that was checked, and not a later one of
            // its id.
            if let Ok(process) = pidfd_open(pid, PidfdFlags::empty())
                && is_marked(pid, &marks)
            {
                let _ = pidfd_send_signal(process, Signal::KILL);
            }
        }
        std::thread::sleep(PAUSE);
    }
}

fn processes() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}

/// Returns whether the process was started with one of the marks; `false` if its environment cannot be read.
fn is_marked(pid: Pid, marks: &[Vec<u8>]) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| marks.iter().any(|mark| mark == variable))
}
