//! Catching of panics: a panic of foreign code becomes a value here, wherever it happens.
//!
//! Three places can panic: the code, the drop of what it held, and the drop of the panic's own payload.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// A future that catches panics: one during a poll becomes its output, one during its drop is logged.
///
/// The inner future is dropped as soon as it is complete.
pub(crate) struct CatchPanic<F: Future>(Option<Pin<Box<F>>>);

/// Wraps a future so that its panics are caught.
pub(crate) fn catch_panic<F: Future>(future: F) -> CatchPanic<F> {
    CatchPanic(Some(Box::pin(future)))
}

impl<F: Future> Future for CatchPanic<F> {
    type Output = Result<F::Output, Arc<str>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // A poll after the end returns pending, as that of a fused future does.
        let Some(future) = &mut self.0 else { return Poll::Pending };
        let output = match catch(|| future.as_mut().poll(context)) {
            Ok(polled) => Ok(ready!(polled)),
            Err(panic) => Err(panic),
        };
        drop_catching(self.0.take());
        Poll::Ready(output)
    }
}

impl<F: Future> Drop for CatchPanic<F> {
    fn drop(&mut self) {
        drop_catching(self.0.take());
    }
}

/// Runs foreign code. A panic becomes an error.
pub(crate) fn catch<T>(code: impl FnOnce() -> T) -> Result<T, Arc<str>> {
    catch_unwind(AssertUnwindSafe(code)).map_err(panic_text)
}

/// Runs foreign code that is not part of a call. A panic is logged.
pub(crate) fn catch_and_log(what: &'static str, code: impl FnOnce()) {
    if let Err(panic) = catch(code) {
        tracing::warn!(panic = &*panic, "a panic {what}");
    }
}

/// Drops a value of foreign code. A panic is logged.
pub(crate) fn drop_catching<T>(value: T) {
    catch_and_log("while a value was dropped", || drop(value));
}

/// Returns the text of a panic. Its payload is dropped. If that panics too, the second payload is forgotten.
fn panic_text(panic: Box<dyn Any + Send>) -> Arc<str> {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("a value that is not text").into();
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        mem::forget(again);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::panic::panic_any;

    /// Panics when it is dropped, even as the payload of a panic.
    struct Grenade;

    impl Drop for Grenade {
        fn drop(&mut self) {
            panic_any("a panic in a drop");
        }
    }

    #[test]
    fn a_panic_of_any_payload_is_a_value() {
        let panics: [(fn(), &str); 3] = [
            (|| panic!("text"), "text"),
            (|| panic_any(7), "a value that is not text"),
            (|| panic_any(Grenade), "a value that is not text"),
        ];
        for (panic, text) in panics {
            assert_eq!(catch_panic(async move { panic() }).now_or_never(), Some(Err(text.into())));
        }
    }

    #[test]
    fn a_panic_in_a_drop_goes_no_further() {
        let parked = || async {
            let _grenade = Grenade;
            std::future::pending::<()>().await;
        };
        let mut polled = catch_panic(parked());
        assert_eq!((&mut polled).now_or_never(), None);
        drop(polled);
        assert_eq!(
            catch_panic(async {
                let _grenade = Grenade;
            })
            .now_or_never(),
            Some(Err("a panic in a drop".into()))
        );
    }

    #[test]
    fn a_value_is_not_lost_when_what_gave_it_panics_in_its_drop() {
        struct Gives(Grenade);
        impl Future for Gives {
            type Output = u8;
            fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<u8> {
                Poll::Ready(7)
            }
        }
        assert_eq!(catch_panic(Gives(Grenade)).now_or_never(), Some(Ok(7)));
    }
}
