//! One question to a provider.

use std::time::Duration;

use agentouto::{Agent, ChatMessage, Context, Delta, DeltaSink, Provider, ProviderError, Reply, Request};
use tokio::time::timeout;

/// What an agent asks after `messages`.
pub(crate) fn request(agent: Agent, text: &str) -> Request {
    Request::new(agent, Context::with_messages("", [ChatMessage::user(text)]), [])
}

/// What came of a question, and what was shown on the way.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) result: Result<Reply, ProviderError>,
    pub(crate) shown: Vec<Delta>,
}

impl Asked {
    /// The text that was shown.
    pub(crate) fn shown_text(&self) -> String {
        let texts = self.shown.iter().filter_map(|delta| match delta {
            Delta::Text(text) => Some(&**text),
            _ => None,
        });
        texts.collect()
    }
}

/// How a reply is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Whole,
    Streamed,
}

impl Manner {
    pub(crate) const BOTH: [Self; 2] = [Self::Whole, Self::Streamed];
}

/// Asks, and fails instead of hanging.
pub(crate) async fn ask(provider: &dyn Provider, request: &Request, manner: Manner) -> Asked {
    let mut shown = Vec::new();
    let mut observer = |delta| shown.push(delta);
    let mut deltas = match manner {
        Manner::Whole => DeltaSink::none(),
        Manner::Streamed => DeltaSink::to(&mut observer),
    };
    let asking = timeout(GUARD, provider.reply(request, &mut deltas));
    let result = asking.await.unwrap_or_else(|_| panic!("no end within {GUARD:?}: {request:?}"));
    Asked { result, shown }
}

/// Longer than anything may take, however busy the machine is.
pub(crate) const GUARD: Duration = Duration::from_secs(60);
