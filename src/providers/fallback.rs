//! Another provider for requests that the first one fails: [`Fallback`], a provider around two providers.

use std::fmt;

use futures_util::future::BoxFuture;

use super::attempts::{falls_back, next_attempt, settled, sum, with_spent};
use crate::provider::{DeltaSink, Provider, ProviderError, ProviderInfo, Request};
use crate::reply::Reply;

/// A provider that asks a second one when the first one fails. It is made with
/// [`ProviderExt::or`](crate::ProviderExt::or), also as a chain: `a.or(b).or(c)`.
///
/// ```
/// # #[cfg(feature = "http")] {
/// use agentouto::ProviderExt as _;
/// use agentouto::providers::anthropic::Anthropic;
/// use agentouto::providers::openai_responses::OpenAiResponses;
///
/// // For agents with the model `claude-opus-5`.
/// let provider = Anthropic::new("sk-ant-…").or(OpenAiResponses::new("sk-…").model("gpt-5.6"));
/// # let _ = provider; }
/// ```
///
/// **When the second one is asked**: the first one refuses the key, has too many requests, has no quota left, is
/// overloaded or unavailable, cannot be reached, needs too long, or its reply broke off
/// ([`Authentication`](crate::ProviderErrorKind::Authentication), `RateLimited`, `QuotaExceeded`, `Overloaded`,
/// `Unavailable`, `Connection`, `Timeout`, `Truncated`). Every other error is returned: the request would fail again, or
/// a filter rejected it. So is an error after a part of the reply has arrived, because that part would be shown twice;
/// it is in [`partial`](ProviderError::partial).
///
/// **At once.** The first one makes no retries of these errors, though a [`Retry`](super::Retry) is built into the HTTP
/// providers: only the last provider of a chain retries. If a server has asked to wait, no request is sent to it until
/// then, and the second one is asked instead. [`after_retries`](Self::after_retries) changes both. To retry the whole
/// chain, wrap it: `a.or(b).retry()`.
///
/// **The same request** goes to the second one: name a model that it knows with
/// [`ProviderExt::model`](crate::ProviderExt::model). Data that the other vendor needs back, such as signed reasoning,
/// is not sent to it; see [`Reply::opaque`]. To a server of the same format it is sent, because the platforms of one
/// vendor understand each other's; if the server refuses it, as another organization or model does, the request is sent
/// once more without it. That is one more request in each turn until the end of the call. Claude with a
/// [budget](https://platform.claude.com/docs/en/build-with-claude/extended-thinking#preserving-thinking-blocks) for its
/// thoughts, which is only sent to models before Claude 4.7, may refuse to go on with tool calls that another model
/// made.
///
/// [`info`](Provider::info) has what both have in common, so that no span names a server that was not asked.
///
/// [`function_calling`](Provider::function_calling) is `true` only if both can
/// call functions. If one of them cannot, wrap that one in
/// [`PromptTools`](crate::providers::prompt_tools::PromptTools), not the whole: `a.or(b.prompt_tools())`.
///
/// **What it costs.** The usage of the first attempt is added to the usage of the reply. Each attempt is a request of a
/// [`Budget`](crate::Budget), and the event [`ModelFallback`](crate::EventKind::ModelFallback) shows the error. If both
/// fail, the error is that of the second one, and its message contains both.
pub struct Fallback<A, B> {
    first: A,
    second: B,
    retries_first: bool,
}

impl<A: Provider, B: Provider> Fallback<A, B> {
    pub(super) fn new(first: A, second: B) -> Self {
        Self { first, second, retries_first: false }
    }

    /// Lets the first provider make its retries before the second one is asked. Default: the second one is asked at
    /// once.
    #[must_use]
    pub fn after_retries(mut self) -> Self {
        self.retries_first = true;
        self
    }

    async fn ask(&self, request: &Request, deltas: &mut DeltaSink<'_>) -> Result<Reply, ProviderError> {
        let before = settled(deltas);
        let error = match self.ask_first(request, deltas).await {
            Err(error) if falls_back(&error) && !deltas.has_shown => error,
            result => return result,
        };
        tracing::info!(
            agent = &*request.agent.name, call_id = %request.call_id, kind = ?error.kind, status = error.status,
            "another provider is asked"
        );
        let spent = error.usage();
        next_attempt(deltas, &error, None, before).await.map_err(|refused| with_spent(refused, spent))?;
        match self.second.reply(request, deltas).await {
            Ok(reply) => Ok(Reply { usage: sum(spent, reply.usage), ..reply }),
            Err(second) => {
                let message = format!("{second}; before, {error}").into();
                Err(with_spent(ProviderError { message, ..second }, spent))
            }
        }
    }

    async fn ask_first(&self, request: &Request, deltas: &mut DeltaSink<'_>) -> Result<Reply, ProviderError> {
        let is_at_once = !self.retries_first;
        let had_fallback = std::mem::replace(&mut deltas.has_fallback, is_at_once);
        deltas.has_shown = false;
        let deltas = WithFallback { deltas, had_fallback };
        self.first.reply(request, deltas.deltas).await
    }
}

/// A sink while the first provider is asked. Afterwards, also if the request is dropped, it is as it was before.
struct WithFallback<'s, 'd> {
    deltas: &'s mut DeltaSink<'d>,
    had_fallback: bool,
}

impl Drop for WithFallback<'_, '_> {
    fn drop(&mut self) {
        self.deltas.has_fallback = self.had_fallback;
    }
}

impl<A: Provider, B: Provider> Provider for Fallback<A, B> {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        deltas: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(self.ask(request, deltas))
    }

    fn function_calling(&self, model: &str) -> Option<bool> {
        match (self.first.function_calling(model), self.second.function_calling(model)) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        }
    }

    fn info(&self) -> ProviderInfo {
        fn common<T: PartialEq>(first: Option<T>, second: Option<T>) -> Option<T> {
            first.filter(|first| second.is_some_and(|second| *first == second))
        }
        let (first, second) = (self.first.info(), self.second.info());
        ProviderInfo {
            name: common(first.name, second.name),
            address: common(first.address, second.address),
            port: common(first.port, second.port),
            streams: common(first.streams, second.streams),
        }
    }
}

impl<A: fmt::Debug, B: fmt::Debug> fmt::Debug for Fallback<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fallback").field("first", &self.first).field("second", &self.second).finish_non_exhaustive()
    }
}
