//! The team that the tests serve, and what its tools say.

use std::sync::Arc;
use std::time::Duration;

use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::tool::{self, NoArguments};
use agentouto::{
    Agent, Attachment, AttachmentKind, CallError, Content, Forward, ProviderError, ProviderErrorKind, Reply, Runtime,
};
use serde_json::json;
use tokio::sync::Barrier;

#[allow(dead_code, reason = "each of two programs uses a part")]
#[path = "../common/pending_tool.rs"]
mod pending_tool;

pub(crate) use pending_tool::{PendingTool, PendingToolEvents};

/// How many calls a meeting takes.
pub(crate) const CROWD: usize = 100;

/// Whom hosts that are not in Rust see.
#[allow(dead_code, reason = "each of two programs uses a part")]
pub(crate) const SHOWN: [&str; 8] =
    ["researcher", "writer", "waiter", "broken", "attendee", "작가", "recruiter", "newcomer"];

/// The team, and who hears what its gate says.
#[allow(dead_code, reason = "each of two programs uses a part")]
pub(crate) fn team() -> (Runtime, PendingToolEvents) {
    let (gate, keeper) = pending_tool::pending_tool();
    (team_with(gate), keeper)
}

/// A researcher who calls a writer, one who waits for ever at a gate, one whose model is out of order, one whose meeting begins
/// when a hundred have come, one who is slow, one whose name is Korean, a painter, and a person.
pub(crate) fn team_with(gate: PendingTool) -> Runtime {
    let broken = ProviderError::new(ProviderErrorKind::Overloaded, "the model is out of order");
    let script = Scripted::new()
        .replies_to_any("researcher", [Reply::call_agent("writer", "Write it."), Reply::finish("A report.")])
        .replies_to_any("writer", [Reply::finish("A draft.")])
        .replies_to_any("waiter", [Reply::tool("gate", json!({}))])
        .replies_to_any("broken", [ScriptedReply::error(broken)])
        .replies_to_any("attendee", [Reply::tool("meeting", json!({})), Reply::finish("We met.")])
        .replies_to_any("sleeper", [ScriptedReply::from(Reply::finish("Good morning.")).after(Duration::from_secs(1))])
        .replies_to_any("작가", [Reply::finish("안녕하세요")]);
    let meeting = Arc::new(Barrier::new(CROWD));
    let meeting = tool::function("meeting", "Begins when all are there.", move |_: NoArguments| {
        let meeting = Arc::clone(&meeting);
        async move {
            meeting.wait().await;
        }
    });
    let names = ["writer", "waiter", "broken", "attendee", "sleeper", "작가"];
    Runtime::builder()
        .provider("script", script)
        .agent(Agent::new("researcher", "Find facts.").role("Finds facts."))
        .agents(names.map(|name| Agent::new(name, format!("{name} instructions."))))
        .user("person", "Somebody who can be asked.", |_: Arc<Forward>| async { Ok::<_, CallError>("yes") })
        .user("painter", "Paints.", |_: Arc<Forward>| async {
            let picture = Attachment::inline(AttachmentKind::Image, "image/png", b"\x89PNG");
            Ok::<_, CallError>(Content::from("A picture:").attach(picture))
        })
        .tool(meeting)
        .tool(gate)
        .build()
        .unwrap()
}
