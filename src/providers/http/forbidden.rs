//! The switch that forbids all requests to models, for tests of a program.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::provider::{ProviderError, ProviderErrorKind};

/// Forbids all requests of HTTP providers in this process, from now on to its end: a test of agents that should use a
/// [`Scripted`](crate::providers::scripted::Scripted) provider fails when one of them asks a real model.
///
/// The environment variable `AGENTOUTO_FORBID_REQUESTS`, with any value but an empty one and `0`, does the same for a
/// whole run of tests, such as `AGENTOUTO_FORBID_REQUESTS=1 cargo test`, or in the `[env]` section of
/// `.cargo/config.toml`.
///
/// Such a request fails before anything is sent, before a [`header_source`](crate::providers::Api::header_source) is
/// asked, and without retries or a [`Fallback`](crate::providers::Fallback). Its error has the kind
/// [`Other`](ProviderErrorKind::Other) and names both switches. Addresses on the same machine are forbidden, too.
/// Requests of MCP clients and of tools are not concerned.
///
/// There is no way back, because the tests of a process run at the same time: one that allowed requests again would
/// allow those of all others. Tests against a server of their own belong to another test binary.
///
/// ```standalone_crate
/// use agentouto::providers::openai::OpenAi;
/// use agentouto::{Agent, Runtime};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// agentouto::providers::forbid_requests();
/// let agent = Agent::new("writer", "Writes.").model("gpt-5.6");
/// let runtime = Runtime::builder().provider("openai", OpenAi::new("sk-…")).agent(agent).build().unwrap();
/// let failed = runtime.run("writer", "Hello.").await.unwrap_err();
/// assert!(failed.to_string().contains("forbidden"));
/// # }
/// ```
pub fn forbid_requests() {
    IS_FORBIDDEN.store(true, Ordering::Relaxed);
}

/// The only state of the process: what it is for is to hold for every provider in it.
static IS_FORBIDDEN: AtomicBool = AtomicBool::new(false);

const VARIABLE: &str = "AGENTOUTO_FORBID_REQUESTS";

/// Refuses a request if all requests are forbidden.
pub(super) fn check() -> Result<(), ProviderError> {
    let is_set = || std::env::var_os(VARIABLE).is_some_and(|value| !value.is_empty() && value != "0");
    if !IS_FORBIDDEN.load(Ordering::Relaxed) && !is_set() {
        return Ok(());
    }
    let message = format!(
        "not sent: requests to models are forbidden in this process, by `providers::forbid_requests` or by the \
         environment variable {VARIABLE}"
    );
    Err(ProviderError { should_retry: Some(false), ..ProviderError::new(ProviderErrorKind::Other, message) })
}
