//! The wakes of a batch: those who wait in one runtime are woken from within it, as a wake from outside is a system call and
//! a batch has many.

use std::{
    cell::RefCell,
    sync::Arc,
    task::{Wake, Waker},
};

use tokio::runtime::Handle;

thread_local! {
    /// Who is to be woken, while a batch of this thread is told.
    static GATHERED: RefCell<Option<Vec<Arc<Waiter>>>> = const { RefCell::new(None) };
}

/// Who waits for an answer, and in which runtime.
struct Waiter {
    runtime: Handle,
    waker: Waker,
}

impl Wake for Waiter {
    fn wake(self: Arc<Self>) {
        let alone = GATHERED.with_borrow_mut(|gathered| match gathered {
            Some(gathered) => {
                gathered.push(self);
                None
            }
            None => Some(self),
        });
        if let Some(waiter) = alone {
            waiter.waker.wake_by_ref();
        }
    }
}

/// Returns a waker that can be gathered with others, for one that belongs to a task of the runtime of this thread.
pub(super) fn gatherable(waker: &Waker) -> Waker {
    let waker = waker.clone();
    match Handle::try_current() {
        Ok(runtime) => Arc::new(Waiter { runtime, waker }).into(),
        Err(_) => waker,
    }
}

/// Gathers the wakes of this thread until it is dropped, which wakes them all.
pub(super) struct Gathering(());

impl Gathering {
    pub(super) fn begin() -> Self {
        GATHERED.set(Some(Vec::new()));
        Self(())
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        let mut left = GATHERED.take().unwrap_or_default();
        while let Some(first) = left.pop() {
            let same = |waiter: &mut Arc<Waiter>| waiter.runtime.id() == first.runtime.id();
            let others: Vec<_> = left.extract_if(.., same).collect();
            if others.is_empty() {
                first.waker.wake_by_ref();
            } else {
                let runtime = first.runtime.clone();
                runtime
                    .spawn(async move { others.iter().chain([&first]).for_each(|waiter| waiter.waker.wake_by_ref()) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use tokio::{
        runtime::{Builder, Runtime},
        sync::oneshot,
    };

    use super::Gathering;
    use crate::disk::{Unavailable, answer_at_last};

    /// Starts to wait for three answers in one runtime and one in another, lets `tell` give them, and returns what came.
    fn told(tell: impl FnOnce(Vec<oneshot::Sender<u32>>)) -> Vec<Result<u32, Unavailable>> {
        let runtimes: [Runtime; 2] =
            [(); 2].map(|()| Builder::new_multi_thread().worker_threads(1).build().expect("room"));
        let (mut senders, mut waiting) = (Vec::new(), Vec::new());
        for runtime in [&runtimes[0], &runtimes[0], &runtimes[1], &runtimes[0]] {
            let ((sender, mut answered), (waits, begun)) = (oneshot::channel(), oneshot::channel());
            waiting.push(runtime.spawn(async move {
                let answer = answer_at_last(&mut answered);
                tokio::pin!(answer);
                assert!(futures_util::poll!(&mut answer).is_pending());
                waits.send(()).expect("waited for");
                answer.await
            }));
            begun.blocking_recv().expect("it waits");
            senders.push(sender);
        }
        tell(senders);
        waiting.into_iter().map(|waiting| runtimes[0].block_on(waiting).expect("no panic")).collect()
    }

    #[test]
    fn each_who_waits_is_woken_in_whatever_runtime() {
        let answers = told(|senders| {
            let _gathering = Gathering::begin();
            for (number, sender) in (0..).zip(senders) {
                sender.send(number).expect("it waits");
            }
        });
        assert_eq!(answers, [Ok(0), Ok(1), Ok(2), Ok(3)]);
    }

    #[test]
    fn each_who_waits_is_woken_where_the_thread_panics_in_between() {
        let answers = told(|mut senders| {
            let last = senders.pop();
            let panics = AssertUnwindSafe(|| {
                let _gathering = Gathering::begin();
                drop(senders);
                panic!("in between");
            });
            assert!(catch_unwind(panics).is_err());
            drop(last);
        });
        assert!(answers.iter().all(Result::is_err) && answers.len() == 4, "{answers:?}");
    }
}
