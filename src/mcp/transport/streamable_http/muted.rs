//! Logging without the SDK's HTTP client, which logs messages of servers that may contain secrets.

use std::sync::{Arc, OnceLock};

use tracing::dispatcher::get_default;
use tracing::instrument::WithSubscriber as _;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, NoSubscriber};
use tracing::{Dispatch, Event, Metadata, Subscriber};

/// The log target of the SDK's HTTP client.
const CLIENT: &str = "rmcp::transport::common::reqwest";

/// The current subscriber, without the events of that client.
#[derive(Clone, Default)]
pub(super) struct Muted(Arc<OnceLock<Dispatch>>);

impl Muted {
    /// Awaits a future without the events of the client.
    pub(super) async fn mute<F: Future>(&self, sending: F) -> F::Output {
        let default = get_default(Dispatch::clone);
        if default.is::<NoSubscriber>() {
            // With any subscriber set, tracing would not pass events on to `log` any more.
            return sending.await;
        }
        let muted = self.0.get_or_init(|| Dispatch::new(Passing(default)));
        sending.with_subscriber(muted.clone()).await
    }
}

/// A subscriber that passes on everything else.
struct Passing(Dispatch);

fn is_muted(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with(CLIENT)
}

impl Subscriber for Passing {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if is_muted(metadata) { Interest::sometimes() } else { self.0.register_callsite(metadata) }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::current())
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        !is_muted(metadata) && self.0.enabled(metadata)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.0.new_span(span)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.0.record(span, values);
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.0.record_follows_from(span, follows);
    }

    fn event(&self, event: &Event<'_>) {
        if !is_muted(event.metadata()) {
            self.0.event(event);
        }
    }

    fn enter(&self, span: &Id) {
        self.0.enter(span);
    }

    fn exit(&self, span: &Id) {
        self.0.exit(span);
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.0.clone_span(id)
    }

    fn try_close(&self, id: Id) -> bool {
        self.0.try_close(id)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::Mutex;

    use futures_util::FutureExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Heard(Arc<Mutex<Vec<u8>>>);

    impl Write for Heard {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn all_but_the_client_is_heard() {
        let heard = Heard::default();
        let writer = heard.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).without_time().with_writer(move || writer.clone());
        tracing::subscriber::with_default(subscriber.finish(), || {
            let sending = async {
                tracing::error!(target: "rmcp::transport::common::reqwest::streamable_http_client", "canary");
                tracing::info_span!("sending").in_scope(|| tracing::info!(target: "hyper", "connected"));
            };
            Muted::default().mute(sending).now_or_never().unwrap();
        });
        let heard = String::from_utf8(heard.0.lock().unwrap().clone()).unwrap();
        assert_eq!(heard.trim(), "INFO sending: hyper: connected");
    }
}
