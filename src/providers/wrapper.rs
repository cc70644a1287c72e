//! Providers around providers: [`ProviderWrapper`], the methods of [`ProviderExt`], and the pointers to providers.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::fallback::Fallback;
#[cfg(feature = "prompt_tools")]
use super::prompt_tools::PromptTools;
#[cfg(feature = "http")]
use super::retry::Retry;
use super::with_model::WithModel;
use crate::provider::{DeltaSink, Provider, ProviderError, ProviderInfo, Request};
use crate::reply::Reply;

/// A provider that asks another provider. Implement this trait in place of [`Provider`], which follows from it: so a
/// wrapper cannot forget to pass on what it does not change.
///
/// ```
/// use agentouto::{BoxFuture, DeltaSink, Provider, ProviderError, ProviderWrapper, Reply, Request};
///
/// /// Logs the size of each context.
/// struct Logged<P>(P);
///
/// impl<P: Provider> ProviderWrapper for Logged<P> {
///     fn inner(&self) -> &dyn Provider {
///         &self.0
///     }
///
///     fn ask<'a>(
///         &'a self,
///         request: &'a Request,
///         deltas: &'a mut DeltaSink<'_>,
///     ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
///         println!("{} messages", request.context.messages().count());
///         self.0.reply(request, deltas)
///     }
/// }
///
/// fn is_provider(_: impl Provider) {}
/// is_provider(Logged(agentouto::providers::scripted::Scripted::new()));
/// ```
///
/// A wrapper that asks again announces it with [`DeltaSink::retry`] or [`DeltaSink::fall_back`]. One that observes the
/// pieces gives the provider inside a sink of [`DeltaSink::inner`].
pub trait ProviderWrapper: Send + Sync + 'static {
    /// The provider inside.
    fn inner(&self) -> &dyn Provider;

    /// Sends one request, as [`Provider::reply`] does.
    fn ask<'a>(
        &'a self,
        request: &'a Request,
        deltas: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>>;

    /// Returns whether a model can call functions, see [`Provider::function_calling`]. Default: what the provider inside
    /// says.
    fn function_calling(&self, model: &str) -> Option<bool> {
        self.inner().function_calling(model)
    }
}

impl<W: ProviderWrapper> Provider for W {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        deltas: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        self.ask(request, deltas)
    }

    fn function_calling(&self, model: &str) -> Option<bool> {
        ProviderWrapper::function_calling(self, model)
    }

    fn info(&self) -> ProviderInfo {
        self.inner().info()
    }
}

/// A shared provider, so that several names or wrappers use the same connections, budget of retries and limits.
impl<P: Provider + ?Sized> Provider for Arc<P> {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        deltas: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        (**self).reply(request, deltas)
    }

    fn function_calling(&self, model: &str) -> Option<bool> {
        (**self).function_calling(model)
    }

    fn info(&self) -> ProviderInfo {
        (**self).info()
    }
}

/// A provider whose type is chosen at run time.
impl Provider for Box<dyn Provider> {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        deltas: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        (**self).reply(request, deltas)
    }

    fn function_calling(&self, model: &str) -> Option<bool> {
        (**self).function_calling(model)
    }

    fn info(&self) -> ProviderInfo {
        (**self).info()
    }
}

/// The wrappers of this crate, as methods of every [`Provider`].
///
/// ```
/// use agentouto::ProviderExt as _;
/// use agentouto::providers::scripted::Scripted;
///
/// let (first, second) = (Scripted::new(), Scripted::new());
/// let provider = first.or(second.model("another-model"));
/// # let _ = provider;
/// ```
pub trait ProviderExt: Provider + Sized {
    /// Asks `other` at once if this provider is overloaded, cannot be reached or refuses the key. See [`Fallback`].
    fn or<P: Provider>(self, other: P) -> Fallback<Self, P> {
        Fallback::new(self, other)
    }

    /// Asks this provider for `model`, whatever the agent says. See [`WithModel`].
    fn model(self, model: impl Into<Arc<str>>) -> WithModel<Self> {
        WithModel::new(self, model.into())
    }

    /// Retries failed requests of this provider. See [`Retry`], which the HTTP providers have built in.
    #[cfg(feature = "http")]
    fn retry(self) -> Retry<Self> {
        Retry::around(self)
    }

    /// Gives tools to models that cannot call functions. See [`PromptTools`].
    #[cfg(feature = "prompt_tools")]
    fn prompt_tools(self) -> PromptTools<Self> {
        PromptTools::around(self)
    }
}

impl<P: Provider> ProviderExt for P {}
