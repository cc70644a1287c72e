//! Models that know text alone, and how scripts of tool calls are said by one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use agentouto::providers::prompt_tools::PromptTools;
use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::{BoxFuture, CallId, ChatMessage, DeltaSink, Provider, ProviderError, Reply, Request};

use super::record::Record;
use super::script::failure;

/// A model that says it knows text alone; when it is shown anything else, the record gets a complaint.
pub(super) struct TextOnly {
    pub(super) model: Scripted,
    pub(super) record: Arc<Record>,
}

impl TextOnly {
    fn look_at(&self, request: &Request) {
        let agent = &request.agent.name;
        if !request.tools.is_empty() {
            self.record.complain(format!("the text-only model of {agent} is offered tools"));
        }
        let is_text = |message: &ChatMessage| match message {
            ChatMessage::User(_) => true,
            ChatMessage::Assistant { tool_calls, .. } => tool_calls.is_empty(),
            ChatMessage::Tool { .. } => false,
        };
        if let Some(message) = request.context.messages().find(|message| !is_text(message)) {
            self.record.complain(format!("the text-only model of {agent} is shown {message:?}"));
        }
    }
}

impl Provider for TextOnly {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        deltas: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        self.look_at(request);
        self.model.reply(request, deltas)
    }

    fn function_calling(&self, _: &str) -> Option<bool> {
        Some(false)
    }
}

/// A script that follows the requests of agents who call functions, said by a model that knows text alone.
pub(super) struct OnText {
    script: Box<dyn Fn(&Request) -> ScriptedReply + Send + Sync>,
    /// What is to be said next, by call. A call asks its model for one reply at a time.
    next: Arc<Mutex<HashMap<CallId, ScriptedReply>>>,
    tools: PromptTools<TextOnly>,
}

impl OnText {
    pub(super) fn new(script: impl Fn(&Request) -> ScriptedReply + Send + Sync + 'static, record: Arc<Record>) -> Self {
        let next: Arc<Mutex<HashMap<CallId, ScriptedReply>>> = Arc::default();
        let to_say = Arc::clone(&next);
        let model = Scripted::computed(move |request| {
            let reply = to_say.lock().unwrap_or_else(PoisonError::into_inner).remove(&request.call_id);
            reply.unwrap_or_else(|| failure(format!("agent `{}` is asked twice for one reply", request.agent.name)))
        });
        Self { script: Box::new(script), next, tools: PromptTools::around(TextOnly { model, record }) }
    }
}

impl Provider for OnText {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        deltas: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        let reply = (self.script)(request);
        self.next.lock().unwrap_or_else(PoisonError::into_inner).insert(request.call_id, reply);
        self.tools.reply(request, deltas)
    }
}

/// A text without the reasoning in its tags, which is no part of an answer.
pub(super) fn without_reasoning(text: &str) -> String {
    let parts = text.split_once("<think>").and_then(|(before, rest)| Some((before, rest.split_once("</think>")?.1)));
    parts.map_or_else(|| text.to_owned(), |(before, after)| format!("{before}{after}"))
}
