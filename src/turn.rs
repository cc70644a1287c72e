//! One turn of an invocation: the model's reply, and the step that follows from it.
//!
//! Nothing here waits, spawns or fails. The invocation carries out the [`Step`].

use std::sync::Arc;

use crate::answer_type::{AnswerType, Expected};
use crate::builtin;
use crate::content::Content;
use crate::context::{ChatMessage, Context};
use crate::error::list;
use crate::name::{CALL_AGENT, FINISH, Name};
use crate::prompt::Roster;
use crate::provider::{ProviderError, ProviderErrorKind};
use crate::reply::{Reply, StopReason};
use crate::tool_call::{Arguments, ToolCall};
use crate::tool_interface::Tool;
use crate::toolbox::Toolbox;

/// The next step of an invocation.
pub(crate) enum Step {
    /// The invocation ends with this answer.
    Finish(Content),
    /// The invocation carries out these actions at once, and then asks the model again. One action for each tool call,
    /// in order.
    Act(Vec<Action>),
    /// The invocation fails, because the model was told often enough that its answer is not of the expected type. The
    /// text is what is wrong with the last one.
    Misfit(String),
    /// The invocation fails, because the reply is not a complete answer.
    Fail(Box<ProviderError>),
}

/// The action that follows from one tool call.
pub(crate) enum Action {
    /// Calls an agent, known or not.
    CallAgent { agent: Name, message: Arc<str> },
    /// Runs a tool.
    UseTool { tool: Arc<dyn Tool>, arguments: Arguments },
    /// The call cannot be carried out. The reason goes back to the model.
    Refuse { reason: String },
}

/// Adds a reply to the context and returns the step that follows.
///
/// - Without tool calls, the reply's text or refusal is the answer. A reply that was cut or that failed is an error
///   that carries the reply. After a reply that paused, the model is asked for the rest.
/// - With a `finish` that can be parsed, the first such call is the answer, and nothing else is carried out.
/// - With a `finish` that cannot be parsed, nothing is carried out either: the model meant to end, not to go on.
/// - Of a reply with tool calls that was cut at the output limit, no call is carried out. Some of them may be complete,
///   but the model may have meant to make more. The model is told so, and may make the calls again.
///
/// - An answer that is not of the expected type goes back to the model, as the error of its `finish` or as a message.
///
/// The answer has everything that the model attached in this invocation: in earlier turns, and in this reply.
pub(crate) fn next(
    context: &mut Context,
    reply: Reply,
    tools: &Toolbox,
    roster: &Roster,
    expected: &mut Expected,
) -> Step {
    if reply.tool_calls.is_empty() {
        return said(context, reply, expected);
    }
    let answer_type = expected.as_ref().map(|expected| expected.answer_type.clone());
    let cut = reply.stop_reason == StopReason::Length;
    let ends = |call: &ToolCall| !cut && &*call.name == FINISH;
    let mut readable = reply.tool_calls.iter().filter(|call| ends(call) && call.malformed.is_none());
    if let Some(text) = readable.find_map(|call| builtin::finish(&call.arguments, answer_type.as_ref()).ok()) {
        return Step::Finish(Content { text, attachments: context.attachments(reply.attachments) });
    }
    let ends_badly = reply.tool_calls.iter().any(ends);
    if ends_badly && expected.as_mut().is_some_and(|expected| !expected.correct()) {
        let problem = |call: &ToolCall| builtin::finish(&call.arguments, answer_type.as_ref()).err();
        return Step::Misfit(reply.tool_calls.iter().filter(|call| ends(call)).find_map(problem).unwrap_or_default());
    }
    context.push_reply(reply);
    let actions = context.last_tool_calls().iter().map(|call| {
        if cut {
            refuse("not carried out, because the reply was cut at the limit of output tokens; try again with less")
        } else if ends_badly && !ends(call) {
            refuse("not carried out, because the same reply called finish")
        } else {
            action(call, tools, roster, answer_type.as_ref()).unwrap_or_else(refuse)
        }
    });
    Step::Act(actions.collect())
}

/// Returns the step that follows from a reply without tool calls.
fn said(context: &mut Context, reply: Reply, expected: &mut Expected) -> Step {
    if reply.stop_reason.is_pause() {
        context.push_reply(reply);
        return Step::Act(Vec::new());
    }
    let flaw = failure(&reply.stop_reason).filter(|_| reply.refusal.is_none());
    let text = context.resumed(reply.text_or_refusal());
    let text = match expected.as_mut().filter(|_| flaw.is_none()) {
        None => text,
        Some(expected) => match expected.answer_type.0.of_text(&text) {
            Ok(text) => text,
            Err(problem) if !expected.correct() => return Step::Misfit(problem),
            Err(problem) => {
                let told = format!("Error: the answer does not fit: {problem}; call finish with it");
                context.push_reply(reply);
                context.push(ChatMessage::user(told));
                return Step::Act(Vec::new());
            }
        },
    };
    let attachments = context.attachments(reply.attachments);
    match flaw {
        None => Step::Finish(Content { text, attachments }),
        Some((kind, message)) => {
            let partial = Reply { text: Some(text), attachments, ..reply };
            Step::Fail(ProviderError { partial: Some(partial.into()), ..ProviderError::new(kind, message) }.into())
        }
    }
}

/// Returns the reason why text that ended so is not a complete answer; `None` if it is one.
fn failure(reason: &StopReason) -> Option<(ProviderErrorKind, String)> {
    match reason {
        StopReason::Length => Some((ProviderErrorKind::Truncated, CUT.to_owned())),
        StopReason::Other(word) if ["max_tokens", "incomplete"].contains(&&**word) => {
            Some((ProviderErrorKind::Truncated, CUT.to_owned()))
        }
        StopReason::ContentFilter => {
            Some((ProviderErrorKind::ContentFilter, "a filter, or the model itself, cut the reply short".to_owned()))
        }
        StopReason::Other(word) if FAILED.contains(&&**word) => {
            Some((ProviderErrorKind::InvalidResponse, format!("the reply ended with `{word}`")))
        }
        StopReason::Stop | StopReason::ToolCalls | StopReason::Other(_) => None,
    }
}

const CUT: &str =
    "the reply was cut at a limit of tokens: `max_output_tokens` of the agent, or what the model can write or read";

/// The stop reasons of replies that failed on the way:
/// [Gemini](https://ai.google.dev/api/generate-content#FinishReason), OpenRouter, DeepSeek, GLM, SGLang.
const FAILED: [&str; 11] = [
    "MALFORMED_FUNCTION_CALL",
    "UNEXPECTED_TOOL_CALL",
    "TOO_MANY_TOOL_CALLS",
    "MISSING_THOUGHT_SIGNATURE",
    "MALFORMED_RESPONSE",
    "OTHER",
    "error",
    "insufficient_system_resource",
    "network_error",
    "sensitive",
    "abort",
];

fn action(
    call: &ToolCall,
    tools: &Toolbox,
    roster: &Roster,
    answer_type: Option<&AnswerType>,
) -> Result<Action, String> {
    if let Some(reason) = &call.malformed {
        return Err(reason.to_string());
    }
    match &*call.name {
        FINISH => Err(builtin::finish(&call.arguments, answer_type).err().unwrap_or_default()),
        CALL_AGENT => {
            let (agent, message) = builtin::call_agent(&call.arguments)?;
            Ok(Action::CallAgent { agent, message })
        }
        name => match tools.find(name) {
            Some(tool) => {
                Ok(Action::UseTool { tool: Arc::clone(tool), arguments: builtin::arguments(&call.arguments)? })
            }
            None => Err(unknown_tool(name, tools, roster)),
        },
    }
}

fn refuse(reason: impl Into<String>) -> Action {
    Action::Refuse { reason: reason.into() }
}

fn unknown_tool(name: &str, tools: &Toolbox, roster: &Roster) -> String {
    let known = list("tools", &tools.nearest(name), tools.len());
    let is_agent = roster.find(name).is_some();
    let hint = if is_agent { format!("; `{name}` is an agent: use call_agent") } else { String::new() };
    format!("Tool not found{hint}; {known}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool;
    use crate::tool_call::ToolSpec;
    use serde_json::json;

    fn toolbox(names: &[&str]) -> Toolbox {
        let tools = names.iter().map(|name| {
            let tool: Arc<dyn Tool> = Arc::new(tool::function(*name, "", |_: tool::NoArguments| async { "" }));
            (Arc::new(tool.spec()), tool)
        });
        Toolbox::new(builtin::specs()).replace(&[], &tools.collect::<Vec<_>>()).unwrap().0
    }

    fn context() -> Context {
        Context::new("", Arc::default(), "go".into())
    }

    fn check(reply: Reply, expected: &[&str]) {
        let roster = Roster::default().with(["a", "b"].map(|name| (name.into(), "".into()))).unwrap();
        let step = next(&mut context(), reply, &toolbox(&["search"]), &roster, &mut None);
        let seen: Vec<String> = match step {
            Step::Finish(answer) => vec![format!("finish {answer}")],
            Step::Act(actions) => actions.iter().map(shown).collect(),
            Step::Misfit(problem) => vec![format!("misfit: {problem}")],
            Step::Fail(error) => {
                let partial = error.partial.unwrap();
                vec![format!("fail {:?}: {} | {}", error.kind, error.message, partial.text.unwrap())]
            }
        };
        assert_eq!(seen, expected);
    }

    fn shown(action: &Action) -> String {
        match action {
            Action::CallAgent { agent, message } => format!("call {agent} {message}"),
            Action::UseTool { tool, arguments } => format!("use {} {}", tool.spec().name, json!(arguments)),
            Action::Refuse { reason } => format!("refuse: {reason}"),
        }
    }

    fn raw(name: &str, arguments: &str) -> Reply {
        Reply { tool_calls: vec![ToolCall::new("1", name, arguments)], ..Reply::default() }
    }

    #[test]
    fn text_alone_is_the_answer_and_so_is_nothing_at_all() {
        check(Reply::text(" \n"), &["finish  \n"]);
        check(Reply::default(), &["finish "]);
    }

    #[test]
    fn the_first_readable_finish_wins_over_everything_beside_it() {
        let tools = Reply::tool("search", json!({})).and_call_agent("b", "x");
        check(
            tools.clone().and_tool("finish", json!({"message": 1})).and_tool("finish", json!({"message": 2})),
            &["finish 1"],
        );
        check(tools, &["use search {}", "call b x"]);
    }

    #[test]
    fn a_finish_that_cannot_be_read_stops_what_stands_beside_it() {
        let reply = Reply::tool("search", json!({})).and_tool("finish", json!({}));
        check(
            reply,
            &[
                "refuse: not carried out, because the same reply called finish",
                "refuse: missing required argument `message`",
            ],
        );
    }

    #[test]
    fn text_that_was_cut_or_failed_is_an_error_that_carries_it() {
        let check = |stop_reason: StopReason, expected: &str| {
            check(Reply { stop_reason, ..Reply::text("The rep") }, &[expected]);
        };
        check(
            StopReason::Length,
            "fail Truncated: the reply was cut at a limit of tokens: `max_output_tokens` of the agent, or what the model can write or read | The rep",
        );
        check(
            StopReason::ContentFilter,
            "fail ContentFilter: a filter, or the model itself, cut the reply short | The rep",
        );
        for word in ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "error"] {
            let expected = format!("fail InvalidResponse: the reply ended with `{word}` | The rep");
            check(StopReason::Other(word.into()), &expected);
        }
        check(StopReason::Other("eos".into()), "finish The rep");
    }

    #[test]
    fn a_model_that_declines_in_words_has_answered() {
        let declined = Reply { refusal: Some("I cannot.".into()), ..Reply::default() };
        check(Reply { stop_reason: StopReason::ContentFilter, ..declined }, &["finish I cannot."]);
    }

    #[test]
    fn a_reply_that_paused_is_part_of_the_answer() {
        let (mut context, tools, roster) = (context(), toolbox(&[]), Roster::default());
        let paused = |text: &str| Reply { stop_reason: StopReason::Other("pause_turn".into()), ..Reply::text(text) };
        let mut next = |reply: Reply| next(&mut context, reply, &tools, &roster, &mut None);
        for text in ["Let me ", "search. "] {
            assert!(matches!(next(paused(text)), Step::Act(actions) if actions.is_empty()));
        }
        let answer = "Let me search. Found.";
        assert!(matches!(next(Reply::text("Found.")), Step::Finish(content) if &*content.text == answer));
        let cut = Reply { stop_reason: StopReason::Length, ..Reply::text("Fou") };
        let Step::Fail(error) = next(cut) else { panic!("it was cut") };
        assert_eq!(error.partial.unwrap().text.as_deref(), Some("Let me search. Fou"));
    }

    #[test]
    fn a_reply_cut_at_the_limit_is_not_acted_upon() {
        let cut =
            "refuse: not carried out, because the reply was cut at the limit of output tokens; try again with less";
        let reply = Reply::tool("search", json!({})).and_tool("finish", json!({"message": "half"}));
        check(Reply { stop_reason: StopReason::Length, ..reply }, &[cut, cut]);
    }

    #[test]
    fn fault_36_an_unknown_tool_is_refused_with_those_there_are() {
        check(raw("serach", "{}"), &["refuse: Tool not found; available tools: search, call_agent, finish"]);
        check(
            raw("b", "{}"),
            &["refuse: Tool not found; `b` is an agent: use call_agent; available tools: search, call_agent, finish"],
        );
        check(raw("", "{}"), &["refuse: Tool not found; available tools: search, call_agent, finish"]);
    }

    #[test]
    fn fault_36_of_many_tools_the_nearest_are_shown() {
        let names: Vec<String> = (0..900).map(|n| format!("tool_{n}")).chain(["search_web".to_owned()]).collect();
        let toolbox = toolbox(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let reason = unknown_tool("searchweb", &toolbox, &Roster::default());
        assert!(reason.starts_with("Tool not found; the nearest of 903 tools: search_web, "), "{reason}");
        assert!(reason.len() < 500, "{reason}");
    }

    #[test]
    fn fault_27_ids_that_repeat_or_are_missing_are_made_unique() {
        let call = |id: &str| ToolCall::new(id, "search", "{}");
        let reply = |ids: &[&str]| Reply { tool_calls: ids.iter().map(|id| call(id)).collect(), ..Reply::default() };
        let (mut context, tools, roster) = (context(), toolbox(&["search"]), Roster::default());
        let mut ids = Vec::new();
        for turn in [reply(&["x", "x", ""]), reply(&["x", "y", "call_2"]), reply(&["", ""])] {
            next(&mut context, turn, &tools, &roster, &mut None);
            ids.extend(context.last_tool_calls().iter().map(|call| call.id.to_string()));
        }
        assert_eq!(ids[..2], ["x", "x_1"], "an id that is new stays as it is");
        assert!(ids.iter().all(|id| !id.is_empty()));
        let unique: std::collections::HashSet<_> = ids.iter().collect();
        assert_eq!(unique.len(), ids.len(), "{ids:?}");
    }

    #[test]
    fn what_is_offered_ends_with_call_agent_and_finish() {
        let names: Vec<Name> = toolbox(&["z", "a"]).specs().iter().map(|spec: &ToolSpec| spec.name.clone()).collect();
        assert_eq!(names.iter().map(|name| &**name).collect::<Vec<_>>(), ["z", "a", "call_agent", "finish"]);
    }
}
