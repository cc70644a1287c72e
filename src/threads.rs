//! The threads of tools that block: a pool of the runtime's own, apart from tokio's.
//!
//! A future is polled here where it may block. While it waits at an await it keeps no thread; when it is dropped before
//! its first poll, it never begins. A thread that waits for a call of an agent (by `block_on`) gives its place to
//! another, so that calls which need this pool themselves can go on, however deep.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use async_task::{FallibleTask, Runnable};

/// The default of [`RuntimeBuilder::blocking_threads`](crate::RuntimeBuilder::blocking_threads).
pub(crate) const DEFAULT_THREADS: usize = 512;
/// The limit of threads, with those that wait for calls of agents.
const MAX_THREADS: usize = 10_000;
/// The time after which a thread without work ends.
const IDLE: Duration = Duration::from_secs(10);

/// A pool of threads. Dropped, its threads end when they have no more work.
pub(crate) struct Threads(Arc<Pool>);

impl Threads {
    /// A pool in which `limit` threads work at the same time. None is started yet.
    pub(crate) fn new(limit: usize) -> Self {
        Self(Arc::new(Pool { limit: limit.max(1), state: Mutex::default(), work: Condvar::new() }))
    }

    /// Polls a future on these threads, within the tokio runtime of the caller. `None` if no thread could be started.
    pub(crate) fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> FallibleTask<T> {
        let tokio = tokio::runtime::Handle::current();
        let within_tokio = async move {
            let mut future = pin!(future);
            poll_fn(|context| {
                let _tokio = tokio.enter();
                future.as_mut().poll(context)
            })
            .await
        };
        let pool = Arc::clone(&self.0);
        let (runnable, task) = async_task::spawn(within_tokio, move |runnable| pool.push(runnable));
        runnable.schedule();
        task.fallible()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.work.notify_all();
    }
}

struct Pool {
    limit: usize,
    state: Mutex<State>,
    /// There is work, or there will be no more.
    work: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Runnable>,
    threads: usize,
    /// Threads without work.
    idle: usize,
    /// Threads that wait for a call of an agent.
    waiting: usize,
    is_closed: bool,
}

thread_local! {
    /// The pool to which this thread belongs, and whether it waits for a call of an agent.
    static THREAD: RefCell<Option<(Arc<Pool>, bool)>> = const { RefCell::new(None) };
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(self: &Arc<Self>, runnable: Runnable) {
        let mut state = self.lock();
        state.queue.push_back(runnable);
        self.supply(state);
    }

    /// Sees to it that the queue is worked off: by a thread without work, by a new one, or later by those that work.
    fn supply(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let missing = state.queue.len() > state.idle && state.threads - state.waiting < self.limit;
        if !missing {
            drop(state);
            self.work.notify_one();
        } else if state.threads < MAX_THREADS && self.start().is_ok() {
            state.threads += 1;
        } else if state.threads == state.waiting {
            // Nothing would ever take these up. Dropped outside the lock, because they are foreign code.
            let refused = std::mem::take(&mut state.queue);
            drop(state);
            drop(refused);
        }
    }

    fn start(self: &Arc<Self>) -> io::Result<()> {
        let pool = Arc::clone(self);
        thread::Builder::new().name("agentouto-blocking".to_owned()).spawn(move || pool.work()).map(drop)
    }

    /// The life of a thread.
    fn work(self: Arc<Self>) {
        THREAD.set(Some((Arc::clone(&self), false)));
        while let Some(runnable) = self.next() {
            runnable.run();
            self.set_waiting(false);
        }
    }

    fn next(&self) -> Option<Runnable> {
        let mut state = self.lock();
        loop {
            if let Some(runnable) = state.queue.pop_front() {
                return Some(runnable);
            }
            if state.is_closed {
                break;
            }
            state.idle += 1;
            let (woken, timeout) = self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if timeout.timed_out() && state.queue.is_empty() {
                break;
            }
        }
        state.threads -= 1;
        None
    }

    /// Notes whether the current thread, which is one of this pool, waits for a call.
    fn set_waiting(self: &Arc<Self>, waits: bool) {
        let is_new = THREAD.with_borrow_mut(|thread| {
            thread.as_mut().is_some_and(|(_, waiting)| std::mem::replace(waiting, waits) != waits)
        });
        if is_new {
            let mut state = self.lock();
            match waits {
                true => {
                    state.waiting += 1;
                    if !state.queue.is_empty() {
                        self.supply(state);
                    }
                }
                false => state.waiting -= 1,
            }
        }
    }
}

/// Polls a call of an agent, which a thread of a pool may wait for.
pub(crate) fn poll_call<T>(poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
    let polled = poll();
    // A thread that is about to end has no such value any more, and waits for nothing.
    let pool = THREAD.try_with(|thread| thread.try_borrow().ok()?.as_ref().map(|(pool, _)| Arc::clone(pool)));
    if let Ok(Some(pool)) = pool {
        pool.set_waiting(polled.is_pending());
    }
    polled
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join_all;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    #[tokio::test]
    async fn no_more_than_the_limit_work_at_once_and_all_are_worked_off() {
        let threads = Threads::new(2);
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let work = |_| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            threads.run(async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                thread::yield_now();
                now.fetch_sub(1, Ordering::SeqCst);
            })
        };
        let done = join_all((0..100).map(work)).await;
        assert_eq!(done.into_iter().flatten().count(), 100);
        assert!(most.load(Ordering::SeqCst) <= 2);
        assert!(threads.0.lock().threads <= 2);
    }

    #[tokio::test]
    async fn a_future_that_waits_keeps_no_thread() {
        let threads = Threads::new(1);
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let waits = threads.run(receiver);
        threads.run(async move { sender.send(7).unwrap() }).await.unwrap();
        assert_eq!(waits.await, Some(Ok(7)));
    }

    #[tokio::test]
    async fn what_is_dropped_before_its_turn_never_begins() {
        let threads = Threads::new(1);
        let (release, gate) = mpsc::channel::<()>();
        let first = threads.run(async move { gate.recv() });
        let began = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&began);
        drop(threads.run(async move { count.fetch_add(1, Ordering::SeqCst) }));
        release.send(()).unwrap();
        first.await.unwrap().unwrap();
        threads.run(async {}).await.unwrap();
        assert_eq!(began.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn threads_end_with_their_pool() {
        let threads = Threads::new(4);
        join_all((0..4).map(|_| threads.run(async {}))).await;
        let pool = Arc::clone(&threads.0);
        drop(threads);
        while pool.lock().threads > 0 {
            tokio::task::yield_now().await;
        }
    }
}
