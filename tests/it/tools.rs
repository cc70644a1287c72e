//! Tools: what becomes of their errors, what they tell of their progress, and that they come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::tool::{self, NoArguments};
use agentouto::{
    Arguments, BoxFuture, BuildError, ChatMessage, Content, EventKind, Progress, ProviderError, ProviderErrorKind,
    Reply, Request, StopReason, Tool, ToolCall, ToolContext, ToolError, ToolErrorKind, ToolSpec,
};
use serde_json::json;
use tokio::time::Instant;

use crate::team::{With, team};

/// A model that uses the tool `net` once, and then says what it read.
fn model() -> Scripted {
    Scripted::computed(|request: &Request| match request.context.turns() {
        0 => Reply::tool("net", json!({"n": 1})),
        _ => Reply::text(last_output(request)),
    })
}

fn last_output(request: &Request) -> Arc<str> {
    match request.context.messages().last() {
        Some(ChatMessage::Tool { output, .. }) => Arc::clone(&output.content.text),
        other => panic!("expected a tool's output, got {other:?}"),
    }
}

/// What the model reads of a tool that fails with each of these errors in turn, how often the tool ran, and for how
/// long.
async fn read<const N: usize>(errors: [ToolError; N]) -> (String, usize, Duration) {
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let parameters = json!({"type": "object", "properties": {}});
    let spec = ToolSpec { name: "net".into(), description: "".into(), parameters };
    let net = tool::from_spec(spec, move |arguments| {
        assert_eq!(arguments["n"], 1, "the arguments are the same each time");
        let error = errors.get(count.fetch_add(1, Ordering::SeqCst)).cloned();
        async move { error.map_or(Ok("fine"), Err) }
    });
    let runtime = team(model(), ["a"]).tool(net).build().unwrap();
    let begun = Instant::now();
    let read = runtime.run("a", "go").await.unwrap().output.to_string();
    (read, runs.load(Ordering::SeqCst), begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_tool_whose_network_failed_is_run_again_twice_and_no_more() {
    let reset = || ToolError::network("connection reset");
    assert_eq!(read([reset()]).await, ("fine".to_owned(), 2, Duration::from_millis(500)));
    assert_eq!(read([reset(), reset()]).await, ("fine".to_owned(), 3, Duration::from_millis(1500)));
    let text = "Error: [net] network error: connection reset".to_owned();
    assert_eq!(read([reset(), reset(), reset()]).await, (text, 3, Duration::from_millis(1500)));
}

#[tokio::test(start_paused = true)]
async fn other_failures_are_told_at_once_in_words_that_say_what_to_do() {
    let refused = ToolError::authentication("NET_TOKEN", "401 Unauthorized");
    assert_eq!(refused.kind, ToolErrorKind::Authentication);
    let text = "Error: [net] authentication failed: 401 Unauthorized; check the configuration of `NET_TOKEN`";
    assert_eq!(read([refused]).await, (text.to_owned(), 1, Duration::ZERO));

    let late = ToolError::timeout(Duration::from_secs(30));
    assert_eq!(read([late]).await, ("Error: [net] timed out after 30s".to_owned(), 1, Duration::ZERO));
    assert_eq!(read(["no".into()]).await, ("Error: [net] no".to_owned(), 1, Duration::ZERO));
}

#[tokio::test]
async fn a_tool_tells_observers_how_far_it_has_come() {
    struct Net;
    impl Tool for Net {
        fn spec(&self) -> ToolSpec {
            ToolSpec { name: "net".into(), description: "".into(), parameters: json!({"type": "object"}) }
        }

        fn call(&self, _: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
            context.progress(Progress { done: 1.0, total: Some(2.0), message: Some("half".into()) });
            Box::pin(async { Ok("done".into()) })
        }
    }
    let mut call = team(model(), ["a"]).tool(Net).build().unwrap().user("user").forward("a", "go");
    let mut seen = Vec::new();
    while let Some(event) = call.next_event().await {
        if let EventKind::ToolProgress { id, progress } = event.kind {
            assert_eq!((event.call_id, event.parent), (call.call_id(), None));
            seen.push((id.to_string(), progress));
        }
    }
    let half = Progress { done: 1.0, total: Some(2.0), message: Some("half".into()) };
    assert_eq!(seen, [("call_0".to_owned(), half)]);
}

#[tokio::test]
async fn tools_join_and_leave_for_calls_that_begin_later() {
    let offered = |request: &Request| request.tools.iter().map(|spec| &*spec.name).collect::<Vec<_>>().join(" ");
    let model = Scripted::computed(move |request: &Request| match request.context.turns() {
        0 if request.context.input() == "use" => Reply::tool("net", json!({})),
        0 => Reply::text(offered(request)),
        _ => Reply::text(last_output(request)),
    });
    let tool = |name: &'static str| tool::function(name, "", move |_: NoArguments| async move { name });
    let runtime = team(model, ["a"]).tool(tool("first")).build().unwrap();
    let said = async |input: &str| runtime.run("a", input).await.unwrap().output.to_string();
    assert_eq!(said("list").await, "first call_agent finish");

    runtime.add_tool(tool("net")).unwrap();
    assert_eq!(said("list").await, "first net call_agent finish");
    assert_eq!(said("use").await, "net");
    for (name, reason) in [("net", "taken"), ("finish", "reserved"), ("", "empty")] {
        let refused = runtime.add_tool(tool(name)).unwrap_err();
        assert!(matches!(&refused, BuildError::Name { what: "tool", .. }), "{refused:?}");
        assert!(refused.to_string().contains(reason), "{refused}");
    }

    assert!(runtime.remove_tool("net"));
    assert!(!runtime.remove_tool("net"), "it is gone");
    assert!(!runtime.remove_tool("finish"), "it is part of the runtime");
    assert_eq!(said("list").await, "first call_agent finish");
    assert!(said("use").await.starts_with("Error: [net] Tool not found"));
}

#[tokio::test]
async fn a_call_that_its_provider_could_not_read_is_refused_with_the_providers_words() {
    let model = Scripted::computed(|request: &Request| match request.context.turns() {
        0 => {
            let bad = |name| ToolCall { malformed: Some("no name".into()), ..ToolCall::new(name, name, "{}") };
            let tool_calls = vec![bad("net"), bad("finish")];
            Reply { tool_calls, stop_reason: StopReason::ToolCalls, ..Reply::default() }
        }
        _ => Reply::text(last_output(request)),
    });
    let net = tool::function("net", "", |_: NoArguments| async { panic!("it must not run") as &str });
    let report = team(model, ["a"]).tool(net).build().unwrap().run("a", "go").await.unwrap();
    assert_eq!(&*report.output, "Error: [finish] no name");
}

#[tokio::test]
async fn a_tool_is_told_the_name_of_the_agent_that_uses_it_and_not_of_the_one_that_called_that() {
    let model =
        Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.messages().last()) {
            (_, Some(ChatMessage::Tool { output, .. })) => Reply::text(Arc::clone(&output.content.text)),
            ("a", _) => Reply::call_agent("b", "who are you?"),
            _ => Reply::tool("who", json!({})),
        });
    let who = With("who", |context: ToolContext| async move { Ok(context.agent.into()) });
    assert_eq!(&*team(model, ["a", "b"]).tool(who).build().unwrap().run("a", "go").await.unwrap().output, "b");
}

#[tokio::test]
async fn a_tool_that_calls_two_agents_one_after_the_other_gets_both_answers() {
    let model = Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
        ("a", 0) => Reply::tool("ask", json!({})),
        ("a", _) => Reply::text(last_output(request)),
        (name, _) => Reply::text(format!("{name} did {}", request.context.input())),
    });
    let ask = With("ask", |context: ToolContext| async move {
        let one = context.caller.call_agent("b", "1").await?;
        let two = context.caller.call_agent("c", "2").await?;
        Ok(format!("{one}, {two}").into())
    });
    let report = team(model, ["a", "b", "c"]).tool(ask).build().unwrap().run("a", "go").await.unwrap();
    assert_eq!(&*report.output, "b did 1, c did 2");
}

#[tokio::test]
async fn the_model_is_told_which_of_its_calls_failed() {
    let (sender, mut marks) = tokio::sync::mpsc::unbounded_channel();
    let model = Scripted::computed(move |request: &Request| match (&*request.agent.name, request.context.turns()) {
        ("a", 0) => Reply::call_agent("b", "fail")
            .and_call_agent("nobody", "x")
            .and_call_agent("c", "x")
            .and_tool("net", json!({}))
            .into(),
        ("a", _) => {
            for message in request.context.messages() {
                if let ChatMessage::Tool { output, .. } = message {
                    sender.send((output.content.text.starts_with("Error: "), output.is_error)).unwrap();
                }
            }
            Reply::text("done").into()
        }
        ("b", _) => ScriptedReply::error(ProviderError::new(ProviderErrorKind::Other, "no")),
        _ => Reply::text("fine").into(),
    });
    let net = tool::function("net", "", |_: NoArguments| async { Err::<(), _>("no") });
    team(model, ["a", "b", "c"]).tool(net).build().unwrap().run("a", "go").await.unwrap();
    let told: Vec<_> = std::iter::from_fn(|| marks.try_recv().ok()).collect();
    assert_eq!(told, [(true, true), (true, true), (false, false), (true, true)]);
}

#[test]
fn progress_that_is_no_number_is_serialised_as_none_and_can_be_read_back() {
    for (progress, wire) in [
        (Progress { done: f64::NAN, total: Some(f64::INFINITY), message: None }, r#"{"done":0.0}"#),
        (Progress { done: f64::NEG_INFINITY, total: Some(2.5), message: None }, r#"{"done":0.0,"total":2.5}"#),
        (Progress { done: 0.5, total: None, message: Some("x".into()) }, r#"{"done":0.5,"message":"x"}"#),
    ] {
        let written = serde_json::to_string(&progress).unwrap();
        assert_eq!(written, wire);
        let read: Progress = serde_json::from_str(&written).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), wire);
    }
}

/// Tools whose awaits are all ready at once, on a single thread.
mod a_tool_that_never_has_to_wait {
    use std::sync::atomic::AtomicBool;
    use std::sync::{Mutex, OnceLock};

    use agentouto::{CallError, Caller, Runtime};
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;
    use crate::team::on_threads;

    /// What such a tool awaits, again and again.
    #[derive(Clone, Copy, Debug)]
    enum Awaits {
        /// A lock that is free.
        Lock,
        /// An agent that there is not.
        Nobody,
        /// Any agent, by the caller of a tool call that is over.
        EndedCaller,
    }

    const ALL: [Awaits; 3] = [Awaits::Lock, Awaits::Nobody, Awaits::EndedCaller];

    async fn spin_until(is_enough: &AtomicBool, awaits: Awaits, own: &Caller, ended: &Caller) {
        let lock = tokio::sync::Mutex::new(0_u64);
        while !is_enough.load(Ordering::SeqCst) {
            match awaits {
                Awaits::Lock => *lock.lock().await += 1,
                Awaits::Nobody => {
                    let error = own.call_agent("nobody", "x").await.unwrap_err();
                    assert!(matches!(error, CallError::UnknownAgent { .. }), "{error}");
                }
                Awaits::EndedCaller => assert_eq!(ended.call_agent("a", "x").await, Err(CallError::Cancelled)),
            }
        }
    }

    /// A runtime whose agent `a` first uses `keep`, and then `reply`. `spin` ends when `enough` ran, and `spin_late`
    /// after 50 ms. Says when one begins.
    fn spinning(awaits: Awaits, reply: Reply) -> (Runtime, mpsc::UnboundedReceiver<()>) {
        let kept: Arc<OnceLock<Caller>> = Arc::default();
        let is_enough = Arc::new(AtomicBool::new(false));
        let (sender, started) = mpsc::unbounded_channel();
        let keep = {
            let kept = Arc::clone(&kept);
            With("keep", move |context: ToolContext| {
                kept.set(context.caller).unwrap();
                async { Ok("kept".into()) }
            })
        };
        let spin = |name, limit| {
            let (kept, is_enough, sender) = (Arc::clone(&kept), Arc::clone(&is_enough), sender.clone());
            With(name, move |context: ToolContext| {
                let (kept, is_enough, sender) = (Arc::clone(&kept), Arc::clone(&is_enough), sender.clone());
                async move {
                    sender.send(()).unwrap();
                    let spinning = spin_until(&is_enough, awaits, &context.caller, kept.get().unwrap());
                    let in_time = timeout(limit, spinning).await.is_ok();
                    Ok(format!("in time: {in_time}").into())
                }
            })
        };
        let (spin, spin_late) =
            (spin("spin", Duration::from_secs(3_600)), spin("spin_late", Duration::from_millis(50)));
        let enough = tool::function("enough", "", move |_: NoArguments| {
            is_enough.store(true, Ordering::SeqCst);
            async {}
        });
        let reply = Mutex::new(Some(reply));
        let model = Scripted::computed(move |request: &Request| match request.context.turns() {
            0 => Reply::tool("keep", json!({})),
            1 => reply.lock().unwrap().take().unwrap(),
            _ => Reply::text(format!("{:?}", outputs(request))),
        });
        (team(model, ["a"]).tool(keep).tool(spin).tool(spin_late).tool(enough).build().unwrap(), started)
    }

    fn outputs(request: &Request) -> Vec<&str> {
        let output = request.context.messages().filter_map(|message| match message {
            ChatMessage::Tool { output, .. } => Some(&*output.content.text),
            _ => None,
        });
        output.collect()
    }

    #[test]
    fn can_be_cancelled() {
        for awaits in ALL {
            on_threads(1, async move {
                let (runtime, mut started) = spinning(awaits, Reply::tool("spin", json!({})));
                let running = tokio::spawn(runtime.user("alice").forward("a", "go"));
                started.recv().await;
                running.abort();
                runtime.idle().await;
            });
        }
    }

    #[test]
    fn lets_the_next_one_of_the_same_reply_have_its_turn() {
        for awaits in ALL {
            on_threads(1, async move {
                let reply = Reply::tool("spin", json!({})).and_tool("enough", json!({}));
                let report = spinning(awaits, reply).0.run("a", "go").await.unwrap();
                assert_eq!(&*report.output, r#"["kept", "in time: true", ""]"#, "{awaits:?}");
            });
        }
    }

    #[test]
    fn is_ended_by_its_own_timeout() {
        for awaits in ALL {
            on_threads(1, async move {
                let report = spinning(awaits, Reply::tool("spin_late", json!({}))).0.run("a", "go").await.unwrap();
                assert_eq!(&*report.output, r#"["kept", "in time: false"]"#, "{awaits:?}");
            });
        }
    }
}
