//! Starts the children of one configured command, and limits how many run.

use std::{process::Stdio, sync::Arc};

use rustix::process::Pid;
use tokio::{process::Command, sync::Semaphore};
use uuid::Uuid;

use super::{
    child::{Child, ChildHandler, Pipes},
    roster::{Group, Roster},
    strays,
    vacancy::Vacancy,
};
use crate::{
    config::{Process, UpstreamId},
    observe::{Observer, events},
    upstream::Failure,
};

/// One command, and its children that run.
#[derive(Debug)]
pub(super) struct Children {
    program: String,
    args: Vec<String>,
    process: Process,
    /// One permit for each child that may still be started.
    slots: Arc<Semaphore>,
    pub(super) roster: Arc<Roster>,
}

impl Children {
    pub(super) fn new(upstream: UpstreamId, program: String, args: Vec<String>, process: Process) -> Arc<Self> {
        let slots = Arc::new(Semaphore::new(process.max_children.min(Semaphore::MAX_PERMITS)));
        Arc::new(Self { program, args, process, slots, roster: Roster::new(upstream) })
    }

    /// Waits until one more child may be started, and returns its place.
    ///
    /// # Errors
    /// [`Failure::Limit`] if that is not soon.
    pub(super) async fn vacancy(&self) -> Result<Vacancy, Failure> {
        self.roster.backoff.turn().await?;
        Ok(Vacancy::among(&self.slots, || {
            let max = self.process.max_children;
            Failure::Limit(format!(
                "limit reached: max_children = {max} processes of this server run, all of them in use or about to end; \
                 try again later"
            ))
        }))
    }

    /// Starts a child in its place; `handler` gets what it says.
    ///
    /// # Errors
    /// [`Failure`] if there is no place in time, or the command cannot be started.
    pub(super) async fn start(
        self: &Arc<Self>,
        vacancy: Vacancy,
        handler: Arc<dyn ChildHandler>,
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
        observer.emit(events::ChildStarted { upstream: self.roster.upstream.as_str(), pid: group.pid() });
        let slot = self.roster.enter(group, mark, permit);
        let pipes = Pipes { stdin, stdout, stderr };
        Ok(Child::run(Arc::clone(&self.roster), process, pipes, slot, handler, observer))
    }
}
