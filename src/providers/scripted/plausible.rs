//! A model without a script that uses everything it is offered, with data made from the schemas.

use std::collections::HashSet;

use parking_lot::Mutex;

use crate::name::{CALL_AGENT, FINISH, Name};
use crate::provider::Request;
use crate::reply::Reply;
use crate::schema;

use super::Scripted;

impl Scripted {
    /// A model that calls every tool once, all in its first reply, and then finishes. The arguments and the answer are
    /// made from the JSON Schemas. It shows that the tools of a program work together; it reads nothing.
    ///
    /// It calls no agent, because agents that all call each other would never end; see
    /// [`Scripted::plausible_calling`]. To have it for some agents only, give [`Reply::plausible`] to
    /// [`Scripted::otherwise`].
    ///
    /// The data fits the schema, as far as a schema says it by type, constants, limits, required properties, references,
    /// and combinations of these. A pattern is followed if it has no look-around, back-reference or Unicode class. A
    /// schema that nothing can fit gets data that is nearly right.
    ///
    /// ```
    /// # use agentouto::{Agent, Runtime, providers::scripted::Scripted, tool};
    /// #[derive(schemars::JsonSchema, serde::Deserialize)]
    /// struct Search {
    ///     query: String,
    ///     #[schemars(range(min = 5, max = 10))]
    ///     limit: u8,
    /// }
    /// #[derive(schemars::JsonSchema, serde::Deserialize)]
    /// struct Verdict {
    ///     score: u8,
    /// }
    ///
    /// let search = tool::function("search", "Searches.", |search: Search| async move {
    ///     assert!((5..=10).contains(&search.limit) && !search.query.is_empty());
    /// });
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let judge = Agent::new("judge", "Judge.");
    /// let runtime = Runtime::builder().provider("fake", Scripted::plausible()).agent(judge).tool(search).build()?;
    /// let verdict = runtime.user("editor").forward("judge", "How good is it?").typed::<Verdict>().await?.output;
    /// assert_eq!(verdict.score, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn plausible() -> Self {
        Self::computed(Reply::plausible)
    }

    /// Like [`Scripted::plausible`], and every agent calls each of these peers once, in the first of its calls, itself
    /// excepted. So a run ends: at most every agent calls every one of them.
    #[must_use]
    pub fn plausible_calling(peers: impl IntoIterator<Item = impl Into<Name>>) -> Self {
        let peers: Vec<Name> = peers.into_iter().map(Into::into).collect();
        let has_called: Mutex<HashSet<Name>> = Mutex::default();
        Self::computed(move |request: &Request| {
            let caller = &request.agent.name;
            let is_first = request.context.turns() == 0 && has_called.lock().insert(caller.clone());
            match is_first {
                true => {
                    let others = peers.iter().filter(|peer| *peer != caller);
                    let first = others.fold(tools(request), |reply, peer| reply.and_call_agent(peer, "text"));
                    if first.tool_calls.is_empty() { finish(request) } else { first }
                }
                false => Reply::plausible(request),
            }
        })
    }
}

impl Reply {
    /// The reply of a model that calls every tool once and then finishes, see [`Scripted::plausible`].
    #[must_use]
    pub fn plausible(request: &Request) -> Self {
        match request.context.turns() {
            0 if request.tools.iter().any(|tool| ![CALL_AGENT, FINISH].contains(&&*tool.name)) => tools(request),
            _ => finish(request),
        }
    }
}

/// Calls of all tools but the built-in ones.
fn tools(request: &Request) -> Reply {
    let tools = request.tools.iter().filter(|tool| ![CALL_AGENT, FINISH].contains(&&*tool.name));
    tools.fold(Reply::default(), |reply, tool| reply.and_tool(&tool.name, schema::example(&tool.parameters)))
}

fn finish(request: &Request) -> Reply {
    match request.tools.iter().find(|tool| *tool.name == *FINISH) {
        Some(tool) => Reply::tool(FINISH, schema::example(&tool.parameters)),
        // A provider in between may write the tools in another form.
        None => Reply::text("text"),
    }
}
