//! The wakes of a batch: those who wait in one runtime are woken from within it, as a wake from outside is a system
//! call and a batch has many.

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
/// Where that runtime has ended, it wakes all the same.
pub(super) fn gatherable(waker: &Waker) -> Waker {
    let waker = waker.clone();
    match Handle::try_current() {
        Ok(runtime) => Arc::new(Waiter { runtime, waker }).into(),
        Err(_) => waker,
    }
}

/// Wakes all of them when it is dropped: in the task that gets it, or where the runtime takes no task any more.
struct Wakes(Vec<Arc<Waiter>>);

impl Drop for Wakes {
    fn drop(&mut self) {
        self.0.iter().for_each(|waiter| waiter.waker.wake_by_ref());
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
            let mut together = Wakes(left.extract_if(.., same).collect());
            let (is_alone, runtime) = (together.0.is_empty(), first.runtime.clone());
            together.0.push(first);
            if is_alone {
                drop(together);
            } else {
                runtime.spawn(async move { drop(together) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        pin::pin,
        sync::{Arc, mpsc},
        task::{Context, Wake},
        thread,
    };

    use tokio::{
        runtime::{Builder, Runtime},
        sync::oneshot,
    };

    use super::{Gathering, gatherable};
    use crate::disk::answer_at_last;

    /// Says on which thread it is woken.
    struct Told(mpsc::Sender<Option<String>>);

    impl Wake for Told {
        fn wake(self: Arc<Self>) {
            // The receiver is gone where a test has failed.
            let _ = self.0.send(thread::current().name().map(str::to_owned));
        }
    }

    fn runtime(name: &str) -> Runtime {
        Builder::new_multi_thread().worker_threads(1).thread_name(name).build().expect("room")
    }

    /// Waits for an answer in each runtime, lets `tell` give the answers, and returns the names of the threads that
    /// woke.
    fn woken_on(runtimes: &[&Runtime], tell: impl FnOnce(Vec<oneshot::Sender<()>>)) -> Vec<String> {
        let (mut senders, mut receivers, (told, woken)) = (Vec::new(), Vec::new(), mpsc::channel());
        for runtime in runtimes {
            let (sender, mut answered) = oneshot::channel();
            let waker = Arc::new(Told(told.clone())).into();
            let _entered = runtime.enter();
            assert!(pin!(answer_at_last(&mut answered)).poll(&mut Context::from_waker(&waker)).is_pending());
            senders.push(sender);
            receivers.push(answered);
        }
        tell(senders);
        runtimes.iter().map(|_| woken.recv().expect("each is woken").unwrap_or_default()).collect()
    }

    fn tell_all(senders: Vec<oneshot::Sender<()>>) {
        let _gathering = Gathering::begin();
        for sender in senders {
            sender.send(()).expect("it waits");
        }
    }

    #[test]
    fn those_who_wait_in_one_runtime_are_woken_from_within_it() {
        let (first, second) = (runtime("first"), runtime("second"));
        let mut woken = woken_on(&[&first, &second, &first, &second, &first], tell_all);
        woken.sort();
        assert_eq!(woken, ["first", "first", "first", "second", "second"]);
    }

    #[test]
    fn each_who_waits_is_woken_where_a_runtime_has_ended() {
        let first = runtime("first");
        let waiters = [(); 2].map(|()| {
            let (told, woken) = mpsc::channel();
            let _entered = first.enter();
            (gatherable(&Arc::new(Told(told)).into()), woken)
        });
        first.shutdown_background();
        let gathering = Gathering::begin();
        for (waker, _) in &waiters {
            waker.wake_by_ref();
        }
        drop(gathering);
        assert!(waiters.iter().all(|(_, woken)| woken.recv().is_ok()));
    }

    #[test]
    fn each_who_waits_is_woken_where_the_thread_panics_in_between() {
        let first = runtime("first");
        let woken = woken_on(&[&first, &first], |senders| {
            let panics = AssertUnwindSafe(|| {
                let _gathering = Gathering::begin();
                drop(senders);
                panic!("in between");
            });
            assert!(catch_unwind(panics).is_err());
        });
        assert_eq!(woken, ["first", "first"]);
    }
}
