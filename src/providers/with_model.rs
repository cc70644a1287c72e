//! Another model's name for a provider: [`WithModel`], a provider around a provider.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::wrapper::ProviderWrapper;
use crate::agent::Agent;
use crate::context::Memo;
use crate::provider::{DeltaSink, Provider, ProviderError, Request};
use crate::reply::Reply;

/// A provider that is asked for a certain model, whatever [`Agent::model`] says.
///
/// It is made with [`ProviderExt::model`](crate::ProviderExt::model), mostly for a [`Fallback`](super::Fallback), whose
/// servers name their models differently. [`Agent::extra`] and the other settings are sent as they are; those of one
/// vendor only belong to agents that use no other.
///
/// Events, spans and the prices of a [`Budget`](crate::Budget) have the name that the agent gives;
/// [`Reply::model`] has the name that the server gives.
pub struct WithModel<P> {
    inner: P,
    model: Arc<str>,
}

/// What the provider inside keeps from turn to turn, and the name of the model for which it does.
struct Kept {
    model: Arc<str>,
    memo: Memo,
}

impl<P: Provider> WithModel<P> {
    pub(super) fn new(inner: P, model: Arc<str>) -> Self {
        Self { inner, model }
    }

    async fn ask(&self, request: &Request, deltas: &mut DeltaSink<'_>) -> Result<Reply, ProviderError> {
        let agent = Agent { model: Arc::clone(&self.model), ..Agent::clone(&request.agent) };
        let mut renamed = Request { agent: agent.into(), ..request.clone() };
        if let Some(Kept { memo, .. }) = request.context.memo.take().filter(|kept: &Kept| kept.model == self.model) {
            renamed.context.memo = memo;
        }
        let reply = self.inner.reply(&renamed, deltas).await;
        request.context.memo.put(Kept { model: Arc::clone(&self.model), memo: renamed.context.memo });
        reply
    }
}

impl<P: Provider> ProviderWrapper for WithModel<P> {
    fn inner(&self) -> &dyn Provider {
        &self.inner
    }

    fn ask<'a>(
        &'a self,
        request: &'a Request,
        deltas: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(self.ask(request, deltas))
    }

    fn function_calling(&self, _: &str) -> Option<bool> {
        self.inner.function_calling(&self.model)
    }
}

impl<P: fmt::Debug> fmt::Debug for WithModel<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithModel").field("inner", &self.inner).field("model", &self.model).finish()
    }
}
