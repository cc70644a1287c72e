//! Budgets: limits that a caller sets for a call and everything below it.
//!
//! Calls and requests are counted before they are sent, in one ledger for each budget, so that what runs at the same
//! time cannot exceed it together. A budget within a budget is a part of it.

mod estimates;
mod ledger;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use self::ledger::{limit, used};
use crate::call_builder::CallBuilder;
use crate::error::Resource;
use crate::user::{Call, Report, RunError};

/// The limits of a call and of everything below it, for [`Call::budget`]. Without limits until they are set.
///
/// A request to a model is reserved before it is sent and counted when it ends; each retry is a request. The input is
/// estimated from its size, the output from the largest reply seen (at first 1,024 tokens) and never above the agent's
/// [`max_output_tokens`](crate::Agent::max_output_tokens). A request whose usage the server does not report counts as
/// estimated.
///
/// Requests run at the same time as long as the budget holds even if each of them uses the most that it may: one token
/// for each byte of its input, and `max_output_tokens`, or eight times the estimate where the agent has no such limit.
/// Near the end of the budget they run one after the other. So the budget is exceeded by the error of one estimate at
/// most.
///
/// ```
/// use std::time::Duration;
/// use agentouto::{Budget, Price};
///
/// let budget = Budget::new()
///     .tokens(200_000)
///     .requests(500)
///     .calls(2_000)
///     .depth(8)
///     .time(Duration::from_secs(600))
///     .price("gpt-5.6", Price { input: 1.25, output: 10.0, cached: Some(0.125), ..Price::default() })
///     .cost(2.50);
/// # let _ = budget;
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budget {
    limits: HashMap<Resource, u64>,
    prices: HashMap<Arc<str>, Price>,
}

/// The price of a model, in a currency of your choice, for a million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Price {
    /// The price of a million input tokens.
    pub input: f64,
    /// The price of a million output tokens, reasoning included.
    pub output: f64,
    /// The price of a million input tokens that came from the server's cache. Default: as `input`.
    pub cached: Option<f64>,
    /// The price of a million input tokens that were written to the server's cache. Default: as `input`. Anthropic
    /// [asks](https://platform.claude.com/docs/en/build-with-claude/prompt-caching#pricing) for 1.25 times as much.
    pub cache_write: Option<f64>,
}

impl Budget {
    /// A budget without limits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The maximum number of tokens: input and output of all requests to models.
    #[must_use]
    pub fn tokens(self, tokens: u64) -> Self {
        self.limit(Resource::Tokens, tokens)
    }

    /// The maximum number of requests to models, each retry included.
    #[must_use]
    pub fn requests(self, requests: u64) -> Self {
        self.limit(Resource::Requests, requests)
    }

    /// The maximum number of calls below the call, at any depth.
    #[must_use]
    pub fn calls(self, calls: u64) -> Self {
        self.limit(Resource::Calls, calls)
    }

    /// The maximum number of levels of calls below the call. With 0 it cannot call anybody.
    #[must_use]
    pub fn depth(self, levels: u64) -> Self {
        self.limit(Resource::Depth, levels)
    }

    /// The maximum time from the moment in which the call is sent, on tokio's clock. After it, the call and everything
    /// below it are cancelled, and fail with [`CallError::BudgetExceeded`](crate::CallError::BudgetExceeded).
    ///
    /// Unlike `tokio::time::timeout` around a call, it keeps the log, and it ends a call that is not awaited. The call
    /// of a user is over as [`Call`] describes; one that a [`Caller`](crate::Caller) makes waits one second for what
    /// blocks an async thread.
    #[must_use]
    pub fn time(self, time: Duration) -> Self {
        self.limit(Resource::Time, u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    /// The maximum cost of all requests to models, in the currency of the [prices](Budget::price). A request to a model
    /// without a price fails.
    #[must_use]
    pub fn cost(self, cost: f64) -> Self {
        self.limit(Resource::Cost, millionths(cost))
    }

    /// The price of a model, by the name that agents give.
    #[must_use]
    pub fn price(mut self, model: impl Into<Arc<str>>, price: Price) -> Self {
        self.prices.insert(model.into(), price);
        self
    }

    fn limit(mut self, what: Resource, limit: u64) -> Self {
        self.limits.insert(what, limit);
        self
    }
}

impl<T> Call<T> {
    /// Limits the call and everything below it. A call below may have a budget of its own, which is a part of this one.
    ///
    /// A call that would exceed the budget is not sent, and a request to a model that would exceed it is not made: the
    /// call fails with [`CallError::BudgetExceeded`](crate::CallError::BudgetExceeded), which the calling model reads
    /// as the output of its tool. The whole run ends with that error when its own agent can make no request any more;
    /// [`RunError::log`] has what was found until then. Observers see [`EventKind::Budget`](crate::EventKind::Budget)
    /// at four fifths and at the end of each limit. It has no effect once the call is sent; a second budget replaces
    /// the first.
    pub fn budget(mut self, budget: Budget) -> Self {
        if let Some(forward) = self.forward_mut() {
            limit(forward, budget);
        }
        self
    }
}

impl<T> CallBuilder<T> {
    /// Limits the call and everything below it, see [`Call::budget`]. It is a part of the budgets of the callers above.
    pub fn budget(mut self, budget: Budget) -> Self {
        limit(self.forward_mut(), budget);
        self
    }
}

impl<T> Report<T> {
    /// The amounts that the run used of its [budget](Call::budget); `None` without a budget.
    #[must_use]
    pub fn used(&self) -> Option<Used> {
        used(self.run())
    }
}

impl RunError {
    /// The amounts that the run used of its [budget](Call::budget); `None` without a budget.
    #[must_use]
    pub fn used(&self) -> Option<Used> {
        used(self.run())
    }
}

/// The amounts that a call and everything below it used, for [`Report::used`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Used {
    /// The tokens, estimated where a server did not report them.
    pub tokens: u64,
    /// The requests to models, each retry included.
    pub requests: u64,
    /// The calls below the call.
    pub calls: u64,
    /// The levels of calls below the call.
    pub depth: u64,
    /// The time from when the call was sent to when the last call or request was counted.
    pub time: Duration,
    /// The cost of the requests to models that have a price.
    pub cost: f64,
}

/// An amount of money in millionths. Negative amounts and those that are no number count as 0.
fn millionths(amount: f64) -> u64 {
    (amount * 1e6).round() as u64
}
