//! What the model of an agent reads before the conversation. Nothing here asks a model.

use std::sync::Arc;

use crate::builtin;
use crate::router::Peer;
use crate::runtime::Runtime;
use crate::tool_call::ToolSpec;

/// The system prompt and the tools of an agent at one moment, see [`Runtime::prompt_of`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AgentPrompt {
    /// The system prompt.
    pub system: Arc<str>,
    /// The tools that the model is offered, built-in ones included.
    pub tools: Arc<[ToolSpec]>,
}

impl Runtime {
    /// Returns the system prompt and the tools that the next call of this agent would get; `None` if no agent has that
    /// name. A provider may write them in another form. A caller that expects a [type of answer](crate::Call::typed)
    /// gives the agent another `finish`.
    ///
    /// ```
    /// # use agentouto::{Agent, Runtime, providers::scripted::Scripted};
    /// let agents = [Agent::new("writer", "Write."), Agent::new("critic", "Judge.")];
    /// let runtime = Runtime::builder().provider("script", Scripted::new()).agents(agents).build()?;
    /// let prompt = runtime.prompt_of("writer").unwrap();
    /// assert!(prompt.system.starts_with("You are \"writer\". Write.\n\nAvailable agents:\n- critic: Judge.\n"));
    /// assert_eq!(prompt.tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["call_agent", "finish"]);
    /// # Ok::<(), agentouto::BuildError>(())
    /// ```
    #[must_use]
    pub fn prompt_of(&self, agent: &str) -> Option<AgentPrompt> {
        let (Some((_, Peer::Agent(entry))), snapshot) = self.router.registry.find(agent) else { return None };
        let system = Arc::clone(&snapshot.roster.prompt(&entry.agent).text);
        Some(AgentPrompt {
            system,
            tools: builtin::with_answer_type(snapshot.tools.specs(), entry.agent.answer_type.as_ref()),
        })
    }
}
