//! The threads of tools that block: a pool of the runtime's own, separate from tokio's.
//!
//! Futures that may block are polled here. While a future waits at an await it keeps no thread; if it is dropped before
//! its first poll, it never begins. A thread that waits for a call of an agent (by `block_on`) gives its turn to
//! another thread while the call is running, so that calls which need this pool themselves can continue, at any depth.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use async_task::{FallibleTask, Runnable};
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::runtime::Handle;

/// The default of [`RuntimeBuilder::blocking_threads`](crate::RuntimeBuilder::blocking_threads).
pub(crate) const DEFAULT_THREADS: usize = 512;
/// The maximum number of threads, including those that wait for calls of agents.
const MAX_THREADS: usize = 10_000;
/// The time after which a thread without work ends.
const MAX_IDLE: Duration = Duration::from_secs(10);

/// A pool of threads. When the pool is dropped, its threads end once they have no more work.
pub(crate) struct BlockingThreads(Arc<Pool>);

impl BlockingThreads {
    /// A pool in which `limit` threads work at the same time. None is started yet.
    pub(crate) fn new(limit: usize) -> Self {
        Self::with_max(limit, MAX_THREADS)
    }

    /// A pool with another maximum than [`MAX_THREADS`].
    fn with_max(limit: usize, most: usize) -> Self {
        Self(Arc::new(Pool { limit: limit.max(1), most, state: Mutex::default(), work: Condvar::new() }))
    }

    /// Polls a future on these threads, within the tokio runtime of the caller. `None` if no thread could be started.
    ///
    /// Dropping the task drops the future at once, unless the future is being polled.
    pub(crate) fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> BlockingTask<T> {
        let slot = Arc::new(Slot { tokio: Handle::current(), future: Mutex::new(Some(Box::pin(future))) });
        let (pool, polled) = (Arc::clone(&self.0), Arc::clone(&slot));
        let polling = poll_fn(move |context| polled.poll(context));
        let (runnable, task) = async_task::spawn(polling, move |runnable| pool.push(runnable));
        runnable.schedule();
        BlockingTask { task: task.fallible(), slot }
    }
}

/// A future on the threads of a pool.
pub(crate) struct BlockingTask<T> {
    task: FallibleTask<T>,
    slot: Arc<Slot<T>>,
}

impl<T> Future for BlockingTask<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        Pin::new(&mut self.task).poll(context)
    }
}

impl<T> Drop for BlockingTask<T> {
    fn drop(&mut self) {
        self.slot.clear();
    }
}

/// The slot of a future, which is empty while the future is polled.
struct Slot<T> {
    tokio: Handle,
    future: Mutex<Option<Pin<Box<dyn Future<Output = T> + Send>>>>,
}

impl<T> Slot<T> {
    /// Polls the future, if it is in the slot. No lock is held during the poll.
    fn poll(&self, context: &mut Context<'_>) -> Poll<T> {
        let Some(mut future) = self.future.lock().take() else { return Poll::Pending };
        let _tokio = self.tokio.enter();
        let polled = future.as_mut().poll(context);
        if polled.is_pending() {
            *self.future.lock() = Some(future);
        }
        polled
    }

    fn clear(&self) {
        let future = self.future.lock().take();
        let _tokio = self.tokio.enter();
        drop(future);
    }
}

impl<T> Drop for Slot<T> {
    /// Clears the slot again: a future that was being polled when the slot was first cleared has been put back.
    fn drop(&mut self) {
        self.clear();
    }
}

impl Drop for BlockingThreads {
    fn drop(&mut self) {
        self.0.state.lock().is_closed = true;
        self.0.work.notify_all();
    }
}

struct Pool {
    /// The number of threads that work at the same time.
    limit: usize,
    /// The maximum number of threads, including those that wait for calls of agents.
    most: usize,
    state: Mutex<State>,
    /// Notified when there is work, or when there will be no more.
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
    static THREAD: RefCell<Option<Arc<Thread>>> = const { RefCell::new(None) };
}

/// A thread of a pool.
struct Thread {
    pool: Arc<Pool>,
    state: Mutex<ThreadState>,
}

#[derive(Default)]
struct ThreadState {
    /// The number of functions that it has run.
    functions: u64,
    /// The number of running calls of agents that the present function made.
    calls: usize,
}

impl Thread {
    /// Counts one more running call of the present function.
    fn enter(self: &Arc<Self>) -> WaitGuard {
        let mut state = self.state.lock();
        state.calls += 1;
        let waiting = WaitGuard { thread: Arc::clone(self), function: state.functions };
        let is_first = state.calls == 1;
        drop(state);
        if is_first {
            self.pool.waits();
        }
        waiting
    }

    /// Counts one call less, if the present function made it.
    fn leave(&self, function: u64) {
        let mut state = self.state.lock();
        if state.functions == function {
            state.calls -= 1;
            let is_last = state.calls == 0;
            drop(state);
            if is_last {
                self.pool.state.lock().waiting -= 1;
            }
        }
    }

    /// Notes that the present function has ended or waits at an await. Its running calls keep no thread.
    fn end(&self) {
        let mut state = self.state.lock();
        state.functions += 1;
        let waited = std::mem::take(&mut state.calls) > 0;
        drop(state);
        if waited {
            self.pool.state.lock().waiting -= 1;
        }
    }
}

/// A running call that a function on a thread of a pool made.
struct WaitGuard {
    thread: Arc<Thread>,
    function: u64,
}

impl WaitGuard {
    /// Returns whether the call belongs to the present function of the current thread.
    fn is_present(&self) -> bool {
        current().is_some_and(|thread| Arc::ptr_eq(&thread, &self.thread))
            && self.thread.state.lock().functions == self.function
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.thread.leave(self.function);
    }
}

/// The current thread, if it is one of a pool.
fn current() -> Option<Arc<Thread>> {
    // A thread that is about to end has no such value any more, and waits for no call.
    THREAD.try_with(|thread| thread.try_borrow().ok()?.clone()).ok().flatten()
}

pin_project_lite::pin_project! {
    /// A call of an agent for which a thread of a pool may wait, by `block_on`. While the call is running, the thread
    /// gives its turn to another one.
    pub(crate) struct WaitedFor<F> {
        #[pin]
        call: F,
        waiting: Option<WaitGuard>,
    }
}

/// Lets a thread of a pool give its turn to another one while it waits for `call`.
pub(crate) fn waited_for<F: Future>(call: F) -> WaitedFor<F> {
    WaitedFor { call, waiting: None }
}

impl<F: Future> Future for WaitedFor<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let polled = this.call.poll(context);
        if polled.is_ready() {
            *this.waiting = None;
        } else if !this.waiting.as_ref().is_some_and(WaitGuard::is_present) {
            *this.waiting = current().map(|thread| thread.enter());
        }
        polled
    }
}

impl Pool {
    fn push(self: &Arc<Self>, runnable: Runnable) {
        let mut state = self.state.lock();
        state.queue.push_back(runnable);
        self.start_if_needed(state);
    }

    /// Makes sure that the queue is processed: by an idle thread, by a new one, or later by one that is busy.
    fn start_if_needed(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let missing = state.queue.len() > state.idle && state.threads - state.waiting < self.limit;
        if !missing {
            drop(state);
            self.work.notify_one();
        } else if state.threads < self.most && self.start().is_ok() {
            state.threads += 1;
        } else if state.threads == state.waiting {
            // No thread would ever run these. They are dropped outside the lock, because they are foreign code.
            let refused = std::mem::take(&mut state.queue);
            drop(state);
            drop(refused);
        }
    }

    fn start(self: &Arc<Self>) -> io::Result<()> {
        let pool = Arc::clone(self);
        thread::Builder::new().name("agentouto-blocking".to_owned()).spawn(move || pool.work()).map(drop)
    }

    /// The loop of a thread.
    fn work(self: Arc<Self>) {
        let thread = Arc::new(Thread { pool: Arc::clone(&self), state: Mutex::default() });
        THREAD.set(Some(Arc::clone(&thread)));
        while let Some(runnable) = self.next() {
            runnable.run();
            thread.end();
        }
    }

    /// Returns the next piece of work for a thread; `None` when the thread must end.
    fn next(&self) -> Option<Runnable> {
        let mut state = self.state.lock();
        loop {
            // There is one thread too many, because others have got their turns back.
            if state.threads - state.waiting > self.limit {
                break;
            }
            if let Some(runnable) = state.queue.pop_front() {
                return Some(runnable);
            }
            if state.is_closed {
                break;
            }
            state.idle += 1;
            let timeout = self.work.wait_for(&mut state, MAX_IDLE);
            state.idle -= 1;
            if timeout.timed_out() && state.queue.is_empty() {
                break;
            }
        }
        state.threads -= 1;
        drop(state);
        // This thread may have been notified of work that it does not take, so it notifies another one.
        self.work.notify_one();
        None
    }

    /// Notes that a thread of this pool begins to wait for a call.
    fn waits(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.waiting += 1;
        if !state.queue.is_empty() {
            self.start_if_needed(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join_all;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    #[tokio::test]
    async fn no_more_than_the_limit_work_at_once_and_all_are_worked_off() {
        let threads = BlockingThreads::new(2);
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
        assert!(threads.0.state.lock().threads <= 2);
    }

    #[tokio::test]
    async fn a_future_that_waits_keeps_no_thread() {
        let threads = BlockingThreads::new(1);
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let waits = threads.run(receiver);
        threads.run(async move { sender.send(7).unwrap() }).await.unwrap();
        assert_eq!(waits.await, Some(Ok(7)));
    }

    #[tokio::test]
    async fn a_thread_that_was_idle_stands_for_no_other() {
        let threads = BlockingThreads::new(4);
        for _ in 0..3 {
            threads.run(async {}).await.unwrap();
            while threads.0.state.lock().idle != 1 {
                tokio::task::yield_now().await;
            }
        }
        let barrier = Arc::new(std::sync::Barrier::new(2));
        let meet = || {
            let barrier = Arc::clone(&barrier);
            threads.run(async move {
                barrier.wait();
            })
        };
        assert_eq!(join_all([meet(), meet()]).await, [Some(()), Some(())]);
    }

    #[tokio::test]
    async fn what_no_thread_could_ever_take_up_is_refused() {
        let threads = BlockingThreads::with_max(1, 1);
        let ((queued, is_queued), (release, gate)) = (mpsc::channel::<()>(), tokio::sync::oneshot::channel());
        let waits = threads.run(async move {
            is_queued.recv().unwrap();
            Handle::current().block_on(waited_for(gate)).unwrap();
        });
        // In the queue before the only thread waits for a call, and after.
        let first = threads.run(async {});
        queued.send(()).unwrap();
        assert_eq!(first.await, None);
        assert_eq!(threads.run(async {}).await, None);
        release.send(()).unwrap();
        assert_eq!(waits.await, Some(()));
        assert_eq!(threads.run(async {}).await, Some(()));
    }

    #[tokio::test]
    async fn what_is_dropped_before_its_turn_never_begins() {
        let threads = BlockingThreads::new(1);
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
    async fn what_is_dropped_while_it_is_polled_is_dropped_within_tokio() {
        struct Dropped(mpsc::Sender<bool>);
        impl Drop for Dropped {
            fn drop(&mut self) {
                self.0.send(Handle::try_current().is_ok()).unwrap();
            }
        }
        let threads = BlockingThreads::new(1);
        let ((begin, begun), (release, gate), (sender, dropped)) = (mpsc::channel(), mpsc::channel(), mpsc::channel());
        let running = threads.run(async move {
            let _held = Dropped(sender);
            begin.send(()).unwrap();
            gate.recv().unwrap();
            std::future::pending::<()>().await;
        });
        begun.recv().unwrap();
        drop(running);
        release.send(()).unwrap();
        assert_eq!(dropped.recv(), Ok(true));
    }

    #[tokio::test]
    async fn threads_end_with_their_pool() {
        let threads = BlockingThreads::new(4);
        join_all((0..4).map(|_| threads.run(async {}))).await;
        let pool = Arc::clone(&threads.0);
        drop(threads);
        while pool.state.lock().threads > 0 {
            tokio::task::yield_now().await;
        }
    }
}
