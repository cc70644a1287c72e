//! The transport to a server behind an address.

use std::error::Error;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::SseRetryPolicy;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
};
use tokio::sync::Notify;

use super::error::io_kind;
use super::remote::Address;

/// How many requests are sent at once.
const MOST_POSTS: usize = 256;

/// The transport. `suspected` is told when the server seems gone.
pub(super) fn transport(
    address: &Address,
    longest: usize,
    suspected: &Arc<Notify>,
) -> Result<StreamableHttpClientTransport<impl StreamableHttpClient + use<>>, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &address.headers {
        let parsed = HeaderName::try_from(name).ok().zip(HeaderValue::try_from(value).ok());
        let (header, mut value) = parsed.ok_or_else(|| format!("header `{name}` cannot be sent"))?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    let mut config = StreamableHttpClientTransportConfig::with_uri(address.url.as_str())
        .max_concurrent_requests(MOST_POSTS)
        .max_sse_event_size(longest)
        // What is pending in a session that is gone fails at once, and a new one begins.
        .reinit_on_expired_session(false)
        .custom_headers(headers.into_iter().filter_map(|(name, value)| Some((name?, value))).collect());
    config.auth_header = address.bearer.clone();
    config.retry_config = Arc::new(Resume { suspected: Arc::clone(suspected) });
    Ok(StreamableHttpClientTransport::from_config(config))
}

/// When a stream that has broken off is resumed: soon; and if that fails, the server is suspected of being gone.
#[derive(Debug)]
struct Resume {
    suspected: Arc<Notify>,
}

impl SseRetryPolicy for Resume {
    fn retry(&self, failed: usize) -> Option<Duration> {
        if failed > 0 {
            self.suspected.notify_one();
        }
        Some(Duration::from_millis(100 << failed.min(8)))
    }
}

/// Whether an error in sending means that nothing was sent.
pub(super) type IsUnreached = fn(&(dyn Error + 'static)) -> bool;

/// Whether errors of this transport mean that no server was reached.
pub(super) fn is_unreached_by<C: StreamableHttpClient>(_: &StreamableHttpClientTransport<C>) -> IsUnreached {
    |error| match error.downcast_ref::<StreamableHttpError<C::Error>>() {
        Some(StreamableHttpError::Client(error)) => matches!(
            io_kind(error),
            Some(ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable)
        ),
        Some(StreamableHttpError::SessionExpired) => true,
        _ => false,
    }
}

/// For transports of which it is never known.
pub(super) fn never(_: &(dyn Error + 'static)) -> bool {
    false
}
