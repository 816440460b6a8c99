//! What a model reads about jobs: first the state, then the next call with its arguments, then what not to do.

use std::time::Duration;

use crate::{
    config::{Template, Tool},
    task::{TaskId, in_words},
    upstream::{JobTool, JobToolNames},
};

/// What can be said of a job.
#[derive(Clone, Debug)]
pub(super) struct JobFacts {
    /// Its id.
    pub(super) id: TaskId,
    /// The tool's name.
    pub(super) tool: Box<str>,
    /// The tool's title, or else its name.
    pub(super) title: Box<str>,
    /// How long its call has run.
    pub(super) elapsed: Duration,
    /// What the server said last.
    pub(super) progress: Option<Box<str>>,
    /// What is known of how long such calls take, such as "usually done in about 4 minutes".
    pub(super) estimate: Option<String>,
    /// The names of the tools for jobs.
    pub(super) names: JobToolNames,
    /// Whether its call was answered without it.
    pub(super) given_up: bool,
}

impl JobFacts {
    /// Answers a call that has become a job.
    pub(super) fn adopted(&self, settings: &Tool) -> String {
        if let Some(template) = &settings.job_text {
            return self.fill(template);
        }
        let Self { id, title, .. } = self;
        let estimate = self.estimate.as_ref().map_or(String::new(), |estimate| format!(" and is {estimate}"));
        format!(
            "{title:?} is still running, as job {id}: it has run for {}{estimate}{}. To get its result, call {}. {}",
            in_words(self.elapsed),
            self.so_far(),
            self.wait(&[*id]),
            self.not_again()
        )
    }

    /// Answers a client that has waited for a job that still runs.
    pub(super) fn still_runs(&self, settings: &Tool) -> String {
        if let Some(template) = &settings.job_wait_text {
            return self.fill(template);
        }
        let Self { id, title, .. } = self;
        let estimate = self.estimate.as_ref().map_or(String::new(), |estimate| format!("; it is {estimate}"));
        format!(
            "Job {id} ({title:?}) is still running after {}, which is normal{estimate}{}. To go on waiting, call {} \
             again. {}",
            in_words(self.elapsed),
            self.so_far(),
            self.wait(&[*id]),
            self.not_again()
        )
    }

    /// Answers a client that has waited for a job that waits for its user.
    pub(super) fn asks(&self, question: &str, can_be_asked: bool) -> String {
        let Self { id, title, .. } = self;
        let (how, next) = if can_be_asked {
            ("; the user was asked, and has not answered yet", "To go on waiting")
        } else {
            (", which this client cannot be asked; tell the user", "To see whether it goes on")
        };
        format!(
            "Job {id} ({title:?}) waits for an answer: {question:?}{how}. {next}, call {}. {}",
            self.wait(&[*id]),
            self.not_again()
        )
    }

    /// Tells progress of a job on the stream of a call that waits for it.
    pub(super) fn progress(&self) -> String {
        running(&self.title, self.elapsed, self.estimate.as_deref(), self.progress.as_deref())
    }

    /// Answers a client whose job gave an error in place of a result.
    pub(super) fn failed(&self, why: &str) -> String {
        let Self { id, title, tool, .. } = self;
        format!(
            "Job {id} ({title:?}) has failed, and has no result: {why}. If the reason is gone or the arguments can be \
             mended, call {tool} anew."
        )
    }

    /// Answers a client that waits for a job that was cancelled.
    pub(super) fn cancelled(&self) -> String {
        let Self { id, title, tool, .. } = self;
        if self.given_up {
            return format!(
                "Job {id} ({title:?}) is no job any more: the call goes on or was answered in its own response. {}",
                self.not_again()
            );
        }
        format!("Job {id} ({title:?}) was cancelled, and has no result. Call {tool} anew only if it is still wanted.")
    }

    /// Answers a client that has cancelled a job.
    pub(super) fn cancels(&self) -> String {
        let Self { id, title, .. } = self;
        format!("Job {id} ({title:?}) is cancelled. It has no result, and what it had done by then may stay done.")
    }

    /// Answers a client that cancels a job that has ended with a result.
    pub(super) fn has_ended(&self) -> String {
        let Self { id, title, .. } = self;
        format!("Job {id} ({title:?}) had ended already. To get its result, call {}.", self.wait(&[*id]))
    }

    /// Answers a client that cancels a job that gave an error in place of a result.
    pub(super) fn had_failed(&self) -> String {
        let Self { id, title, .. } = self;
        let wait = self.wait(&[*id]);
        format!("Job {id} ({title:?}) had failed already, and has no result. To read why, call {wait}.")
    }

    /// Returns the line of a job that runs, in a list.
    pub(super) fn line(&self) -> String {
        let Self { id, title, .. } = self;
        format!("- {id}: {title:?} has run for {}{}", in_words(self.elapsed), self.so_far())
    }

    /// Returns the line of a job that has ended, in a list.
    pub(super) fn ended_line(&self, how: &str) -> String {
        let Self { id, title, .. } = self;
        format!("- {id}: {title:?} {how}")
    }

    fn so_far(&self) -> String {
        self.progress.as_ref().map_or(String::new(), |progress| format!(" (so far: {progress})"))
    }

    fn wait(&self, ids: &[TaskId]) -> String {
        wait_call(self.names, ids)
    }

    fn not_again(&self) -> String {
        format!("Do not call {} again for this, it would run twice.", self.tool)
    }

    fn fill(&self, template: &Template) -> String {
        template.fill(|place| match place {
            "job_id" => self.id.to_string(),
            "title" => self.title.to_string(),
            "tool" => self.tool.to_string(),
            "wait_for_job" => self.names.of(JobTool::Wait),
            "elapsed" => in_words(self.elapsed),
            "progress" => self.progress.as_deref().unwrap_or_default().to_owned(),
            "estimate" => self.estimate.clone().unwrap_or_default(),
            // `config` takes no other.
            _ => String::new(),
        })
    }
}

/// Returns how a model calls the tool that waits.
pub(super) fn wait_call(names: JobToolNames, ids: &[TaskId]) -> String {
    format!("{} with {{\"job_ids\":{}}}", names.of(JobTool::Wait), serde_json::json!(ids))
}

/// Returns how a model calls the tool that waits, for a job that is not named here.
pub(super) fn wait_call_of_any(names: JobToolNames) -> String {
    format!("{} with {{\"job_ids\":[\"<id>\"]}}", names.of(JobTool::Wait))
}

/// Says that a call runs, for a person: what the server said last, or else for how long.
pub(super) fn running(title: &str, elapsed: Duration, estimate: Option<&str>, progress: Option<&str>) -> String {
    let estimate = estimate.map_or(String::new(), |estimate| format!("; {estimate}"));
    let progress = progress.map_or(String::new(), |progress| format!("{progress}; "));
    format!("{progress}{title:?} has run for {}{estimate}", in_words(elapsed))
}

/// Answers for a job whose result was kept, and cannot be read any more.
pub(super) fn damaged(id: &str) -> String {
    format!(
        "The job {id:?} is done, and its result is damaged on the disk of taskgate. Waiting or asking again will not help. Call the \
         tool itself anew only if its result is still wanted."
    )
}

/// Answers for an id that is unknown, foreign or expired. `names` are those of the tools where jobs can be listed.
pub(super) fn unknown(id: &str, names: Option<JobToolNames>) -> String {
    let list = names.map_or(String::new(), |names| format!("{} tells the ids of your jobs. ", names.of(JobTool::List)));
    format!(
        "There is no job {id:?} of yours: the id is not right, or the job ended so long ago that its result is gone. \
         {list}Call the tool itself anew only if its result is still wanted."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::KnownTools;

    fn facts() -> JobFacts {
        JobFacts {
            id: TaskId::nil(),
            tool: "export".into(),
            title: "Export all".into(),
            elapsed: Duration::from_secs(45),
            progress: Some("3 of 7".into()),
            estimate: Some("usually done in about 4 minutes".to_owned()),
            names: KnownTools::default().job_tools().expect("names"),
            given_up: false,
        }
    }

    #[test]
    fn a_text_tells_the_state_then_the_next_call_and_then_what_not_to_do() {
        let id = TaskId::nil();
        assert_eq!(
            facts().adopted(&Tool::default()),
            format!(
                "\"Export all\" is still running, as job {id}: it has run for 45 seconds and is usually done in about 4 \
                 minutes (so far: 3 of 7). To get its result, call wait_for_job with {{\"job_ids\":[\"{id}\"]}}. Do not \
                 call export again for this, it would run twice."
            )
        );
        let bare = JobFacts { progress: None, estimate: None, ..facts() };
        let text = bare.still_runs(&Tool::default());
        assert!(
            text.contains("is still running after 45 seconds, which is normal. To go on waiting, call wait"),
            "{text}"
        );
    }
}
