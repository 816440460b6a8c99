//! The children of one configured command: how they are started, how many there are, and when the next one may start.

use std::{
    collections::HashMap,
    process::{ExitStatus, Stdio},
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal};
use tokio::{
    process::Command,
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::{
    backoff::Backoff,
    child::{Child, Ears, Group, Pipes},
    strays,
    vacancy::Vacancy,
};
use crate::{
    config::{Process, UpstreamId},
    observe::{Observer, events},
    upstream::Failure,
};

/// How long a child may take to end after its stdin was closed, and again after SIGTERM.
pub(crate) const TIME_TO_END: Duration = Duration::from_millis(1500);

/// One command, and its children that run.
#[derive(Debug)]
pub(super) struct Children {
    /// The upstream, for the log.
    pub(super) upstream: UpstreamId,
    program: String,
    args: Vec<String>,
    process: Process,
    /// One permit for each child that may still be started.
    slots: Arc<Semaphore>,
    /// The marks of the children that run, by their groups.
    running: Mutex<HashMap<Group, String>>,
    pub(super) backoff: Backoff,
    /// How the last child to end ended; `None` if it had to be told by a signal.
    pub(super) last_status: Mutex<Option<ExitStatus>>,
    /// What runs as long as a child does.
    pub(super) tasks: TaskTracker,
}

/// A child's place among those that run, given back when it has been reaped.
#[derive(Debug)]
pub(super) struct Slot {
    children: Weak<Children>,
    group: Group,
    /// See [`strays`].
    pub(super) mark: String,
    _permit: OwnedSemaphorePermit,
}

impl Slot {
    /// The group that the child leads.
    pub(super) fn group(&self) -> Group {
        self.group
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(children) = self.children.upgrade() {
            children.running.lock().remove(&self.group);
        }
    }
}

impl Children {
    pub(super) fn new(upstream: UpstreamId, program: String, args: Vec<String>, process: Process) -> Arc<Self> {
        let slots = Arc::new(Semaphore::new(process.max_children.min(Semaphore::MAX_PERMITS)));
        let (running, backoff, last_status) = (Mutex::default(), Backoff::of(upstream.clone()), Mutex::default());
        let tasks = TaskTracker::new();
        Arc::new(Self { upstream, program, args, process, slots, running, backoff, last_status, tasks })
    }

    /// The place of one more child, once it may be started.
    ///
    /// # Errors
    /// [`Failure::Limit`] if that is not soon.
    pub(super) async fn vacancy(&self) -> Result<Vacancy, Failure> {
        self.backoff.turn().await?;
        Ok(Vacancy::among(&self.slots, || {
            let max = self.process.max_children;
            Failure::Limit(format!(
                "limit reached: max_children = {max} processes of this server run, all of them in use or about to end; \
                 try again later"
            ))
        }))
    }

    /// Starts a child in its place; `ears` hears what it says.
    ///
    /// # Errors
    /// [`Failure`] if there is no place in time, or the command cannot be started.
    pub(super) async fn start(
        self: &Arc<Self>,
        vacancy: Vacancy,
        ears: Arc<dyn Ears>,
        observer: Arc<Observer>,
    ) -> Result<Arc<Child>, Failure> {
        let permit = vacancy.taken().await?;
        let mark = Uuid::new_v4().to_string();
        // A group of its own, so that what the command starts can be stopped with it.
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .envs(self.process.env.iter().map(|(name, value)| (name, value)))
            .env(strays::MARK, &mark)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(cwd) = &self.process.cwd {
            command.current_dir(cwd);
        }
        let mut process = command.spawn().map_err(|error| {
            let within = self.process.cwd.as_ref().map_or_else(String::new, |cwd| format!(" in {}", cwd.display()));
            Failure::Unreachable(format!("cannot start {:?}{within}: {error}", self.program))
        })?;
        let pid = process.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        let (Some(pid), Some(stdin), Some(stdout), Some(stderr)) =
            (pid, process.stdin.take(), process.stdout.take(), process.stderr.take())
        else {
            return Err(Failure::Unreachable(format!("cannot talk to {:?}", self.program)));
        };
        let group = Group(pid);
        observer.emit(events::ChildStarted { upstream: self.upstream.as_str(), pid: group.pid() });
        self.running.lock().insert(group, mark.clone());
        let slot = Slot { children: Arc::downgrade(self), group, mark, _permit: permit };
        Ok(Child::run(Arc::clone(self), process, Pipes { stdin, stdout, stderr }, slot, ears, observer))
    }

    /// Waits until every child is gone.
    pub(super) async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Kills every child and all that it has started, without waiting for anything.
    pub(super) fn kill(&self) {
        let (groups, marks): (Vec<_>, Vec<_>) = std::mem::take(&mut *self.running.lock()).into_iter().unzip();
        for group in &groups {
            group.signal(Signal::KILL);
        }
        if !marks.is_empty() {
            strays::kill(&marks);
        }
    }
}
