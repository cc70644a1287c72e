//! Faults and bad inputs that models, tools and programs come with. Each test names its number in the catalogue.

use std::sync::Arc;
use std::time::Duration;

use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::tool::{self, NoArguments};
use agentouto::{
    Agent, BoxFuture, CallError, ChatMessage, DeltaSink, EventKind, Message, Provider, ProviderError,
    ProviderErrorKind, Reply, Request, RuntimeBuilder, StopReason, Tool, ToolCall,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::pending_tool::PendingTool;
use crate::team::{odd_in_log, on_threads, path, team};

/// A reply with one tool call, as it came over the wire.
fn raw(id: &str, name: &str, arguments: &str) -> Reply {
    Reply {
        tool_calls: vec![ToolCall::new(id, name, arguments)],
        stop_reason: StopReason::ToolCalls,
        ..Reply::default()
    }
}

/// A tool that gives back its arguments.
fn echo() -> impl Tool {
    let parameters = json!({"type": "object", "properties": {}});
    let spec = agentouto::ToolSpec { name: "echo".into(), description: "".into(), parameters };
    tool::from_spec(spec, |arguments| std::future::ready(Value::Object(arguments)))
}

/// What agent `a` reads after its model said `reply`.
async fn read_after(reply: Reply, builder: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder) -> Vec<String> {
    let (sender, mut seen) = mpsc::unbounded_channel();
    let model = Scripted::computed(move |request: &Request| match request.context.turns() {
        0 => reply.clone(),
        _ => {
            for message in request.context.messages() {
                if let ChatMessage::Tool { id, output, .. } = message {
                    sender.send(format!("{id}: {}", output.content)).unwrap();
                }
            }
            Reply::text("done")
        }
    });
    let runtime = builder(team(model, ["a", "b"])).build().unwrap();
    assert_eq!(&*runtime.run("a", "go").await.unwrap().output, "done");
    std::iter::from_fn(|| seen.try_recv().ok()).collect()
}

async fn read_after_arguments(arguments: &str) -> String {
    read_after(raw("1", "echo", arguments), |builder| builder.tool(echo())).await.remove(0)
}

#[tokio::test]
async fn fault_27_repeated_and_empty_ids_run_all_calls_and_stay_unique() {
    let mut reply = raw("x", "echo", r#"{"n":1}"#);
    reply.tool_calls.extend(raw("x", "echo", r#"{"n":2}"#).tool_calls);
    reply.tool_calls.extend(raw("", "echo", r#"{"n":3}"#).tool_calls);
    let read = read_after(reply, |builder| builder.tool(echo())).await;
    assert_eq!(read, [r#"x: {"n":1}"#, r#"x_1: {"n":2}"#, r#"call_2: {"n":3}"#]);
}

/// The ids of a call whose model makes one tool call a turn, with these ids, after such a history.
async fn ids_of_single_calls<const N: usize>(given: [&'static str; N], history: Vec<ChatMessage>) -> String {
    let model = Scripted::computed(move |request: &Request| match given.get(request.context.turns()) {
        Some(id) => raw(id, "echo", "{}"),
        None => {
            let ids = request.context.messages().filter_map(|message| match message {
                ChatMessage::Assistant { tool_calls, .. } => Some(&*tool_calls[0].id),
                _ => None,
            });
            Reply::text(ids.collect::<Vec<_>>().join(" "))
        }
    });
    let runtime = team(model, ["a"]).tool(echo()).build().unwrap();
    runtime.user("alice").forward("a", "go").history(history).await.unwrap().output.to_string()
}

#[tokio::test]
async fn fault_27_the_only_call_of_a_turn_has_an_id_of_its_own() {
    assert_eq!(ids_of_single_calls(["x", "y", "x", ""], vec![]).await, "x y x_2 call_3");
    assert_eq!(ids_of_single_calls(["", "call_0"], vec![]).await, "call_0 call_0_1");
    let tool_calls = raw("x", "echo", "{}").tool_calls;
    let said = ChatMessage::Assistant { text: None, reasoning: None, attachments: vec![], tool_calls, opaque: None };
    assert_eq!(ids_of_single_calls(["x", "x"], vec![said]).await, "x x_1 x_2");
}

#[tokio::test]
async fn fault_30_a_call_without_a_name_or_with_null_input_is_told_to_the_model() {
    let read = read_after(raw("1", "", "{}"), |builder| builder.tool(echo())).await;
    assert_eq!(read, ["1: Error: [] Tool not found; available tools: echo, call_agent, finish"]);
    assert_eq!(read_after_arguments("null").await, "1: Error: [echo] the arguments must be a JSON object, not `null`");
}

#[tokio::test]
async fn fault_31_arguments_are_an_object_or_an_error_that_the_model_reads() {
    assert_eq!(read_after_arguments("").await, "1: {}");
    assert_eq!(read_after_arguments(r#""{\"a\":1}""#).await, r#"1: {"a":1}"#);
    assert_eq!(read_after_arguments("[1]").await, "1: Error: [echo] the arguments must be a JSON object, not an array");
    assert!(
        read_after_arguments("{} junk")
            .await
            .starts_with("1: Error: [echo] the arguments are not valid JSON: trailing")
    );
}

#[tokio::test]
async fn fault_32_parallel_calls_without_ids_are_all_kept() {
    let call = |n: u8| raw("", "echo", &json!({ "n": n }).to_string()).tool_calls.remove(0);
    let reply = Reply { tool_calls: (0..3).map(call).collect(), ..Reply::default() };
    let read = read_after(reply, |builder| builder.tool(echo())).await;
    assert_eq!(read, [r#"call_0: {"n":0}"#, r#"call_1: {"n":1}"#, r#"call_2: {"n":2}"#]);
}

#[tokio::test]
async fn fault_33_and_34_bombs_in_arguments_are_errors_that_the_model_reads() {
    assert!(read_after_arguments(&"[".repeat(1_000_000)).await.contains("recursion limit"));
    let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(16 << 20));
    assert_eq!(
        read_after_arguments(&long).await,
        "1: Error: [echo] the arguments have 16777224 bytes; at most 16777216 are read"
    );
}

#[tokio::test]
async fn fault_34_a_message_that_is_too_long_is_refused_and_neither_sent_nor_the_answer() {
    let long = "x".repeat(16 << 20);
    for (name, arguments) in [
        ("call_agent", json!({"agent_name": "nobody", "message": long})),
        ("finish", json!({"message": long})),
        // What is not just as the model was told to write it is read in another way.
        ("finish", json!([{"message": long}])),
    ] {
        let arguments = arguments.to_string();
        let refused =
            format!("1: Error: [{name}] the arguments have {} bytes; at most 16777216 are read", arguments.len());
        assert_eq!(read_after(raw("1", name, &arguments), |builder| builder).await, [refused]);
    }
}

#[tokio::test]
async fn fault_34_a_message_of_a_mebibyte_goes_there_and_back_byte_for_byte() {
    let message = "한글 \"quoted\" \\ {[\n</tool_call>\t".repeat((1 << 20) / 32);
    assert!(message.len() > 1 << 20);
    let model = Scripted::computed({
        let message = message.clone();
        move |request: &Request| match (&*request.agent.name, request.context.messages().last()) {
            ("a", Some(ChatMessage::Tool { output, .. })) => Reply::finish(&output.content.text),
            ("a", _) => Reply::call_agent("b", &message),
            _ => Reply::finish(request.context.input()),
        }
    });
    let report = team(model, ["a", "b"]).build().unwrap().run("a", "go").await.unwrap();
    assert!(*report.output == *message, "{} bytes", report.output.len());
    let said = report.log.messages().skip(1).map(|said| match said {
        Message::Forward(forward) => forward.content.to_string(),
        Message::Return(answer) => answer.result.as_ref().unwrap().to_string(),
    });
    assert_eq!(said.map(|said| said == message).collect::<Vec<_>>(), [true; 3]);
}

#[tokio::test]
async fn fault_35_odd_json_has_a_defined_meaning() {
    assert_eq!(read_after_arguments(r#"{"a":1,"a":2}"#).await, r#"1: {"a":2}"#);
    assert_eq!(read_after_arguments(r#"{"a":"\u0000"}"#).await, r#"1: {"a":"\u0000"}"#);
    for bad in [r#"{"a":1e999}"#, r#"{"a":"\ud800"}"#] {
        assert!(
            read_after_arguments(bad).await.starts_with("1: Error: [echo] the arguments are not valid JSON"),
            "{bad}"
        );
    }
}

#[tokio::test]
async fn fault_36_unknown_names_are_errors_with_those_there_are() {
    let reply = raw("1", "nope", "{}").and_call_agent("B", "x").and_tool("b", json!({}));
    let read = read_after(reply, |builder| builder.tool(echo())).await;
    assert_eq!(read[0], "1: Error: [nope] Tool not found; available tools: echo, call_agent, finish");
    assert_eq!(read[1], "call_1: Error: Unknown agent: B; available agents: a, b");
    assert_eq!(
        read[2],
        "call_2: Error: [b] Tool not found; `b` is an agent: use call_agent; available tools: echo, call_agent, finish"
    );
}

#[tokio::test]
async fn fault_36_a_tool_that_is_called_as_an_agent_is_named_as_a_tool() {
    let reply = Reply::call_agent("echo", "x").and_call_agent("finish", "x");
    let read = read_after(reply, |builder| builder.tool(echo())).await;
    assert_eq!(
        read,
        [
            "call_0: Error: Unknown agent: echo; `echo` is a tool: call it directly; available agents: a, b",
            "call_1: Error: Unknown agent: finish; `finish` is a tool: call it directly; available agents: a, b",
        ]
    );
    let before = json!({"unknown_agent": {"agent": "c", "nearest": ["a"], "count": 1}});
    let error: CallError = serde_json::from_value(before.clone()).unwrap();
    assert_eq!(error.to_string(), "Unknown agent: c; available agents: a");
    assert_eq!(serde_json::to_value(error).unwrap(), before, "written as it was before there was the hint");
}

#[tokio::test]
async fn fault_36_a_reply_may_be_wrong_a_thousand_times_about_a_thousand_agents() {
    let names = || (0..1_000).map(|n| format!("Agent_{n:03}"));
    let reply = names().fold(Reply::default(), |reply, name| reply.and_call_agent(&name.to_lowercase(), "x"));
    let read = read_after(reply, |builder| builder.agents(names().map(|name| agentouto::Agent::new(name, "x")))).await;
    assert_eq!(read.len(), 1_000);
    for (read, name) in read.iter().zip(names()) {
        let expected = format!("Unknown agent: {}; the nearest of 1002 agents: {name}, ", name.to_lowercase());
        assert!(read.contains(&expected), "{read}");
    }
}

#[tokio::test]
async fn fault_36_of_many_agents_the_nearest_are_named() {
    let read = read_after(Reply::call_agent("writer", "x"), |builder| {
        builder
            .agents((0..100).map(|n| agentouto::Agent::new(format!("agent {n}"), "x")))
            .agent(agentouto::Agent::new("Writer", ""))
    })
    .await;
    assert!(
        read[0].starts_with("call_0: Error: Unknown agent: writer; the nearest of 103 agents: Writer, "),
        "{read:?}"
    );
}

#[tokio::test]
async fn fault_37_calls_to_oneself_to_the_caller_and_in_cycles_are_calls_like_any_other() {
    let model = Scripted::computed(|request: &Request| match (request.context.input(), request.context.turns()) {
        ("1", 0) => Reply::call_agent("b", "2"),
        ("2", 0) => Reply::call_agent("a", "3"),
        ("3", 0) => Reply::call_agent("a", "4"),
        (input, _) => Reply::text(format!("r{input}")),
    });
    let report = team(model, ["a", "b"]).build().unwrap().run("a", "1").await.unwrap();
    assert_eq!(
        path(&report.log),
        ["user > a: 1", "a > b: 2", "b > a: 3", "a > a: 4", "a < a: r4", "b < a: r3", "a < b: r2", "user < a: r1"]
    );
}

#[tokio::test]
async fn fault_43_a_panic_with_any_payload_is_one_error_with_its_text() {
    for (panic, text) in [
        (Box::new(|| -> () { std::panic::panic_any("a &str") }) as Box<dyn Fn() + Send + Sync>, "a &str"),
        (Box::new(|| -> () { std::panic::panic_any("a String".to_owned()) }), "a String"),
        (Box::new(|| -> () { std::panic::panic_any(()) }), "a value that is not text"),
    ] {
        let panic = Arc::new(panic);
        // In a tool: the model reads it, and what stands beside it is not touched.
        let (here, there) = (Arc::clone(&panic), Arc::clone(&panic));
        let reply = Reply::tool("here", json!({})).and_tool("there", json!({})).and_tool("echo", json!({"n": 1}));
        let read = read_after(reply, |builder| {
            builder
                .tool(tool::function("here", "", move |_: NoArguments| {
                    here();
                    async {}
                }))
                .tool(tool::blocking("there", "", move |_: NoArguments| there()))
                .tool(echo())
        })
        .await;
        assert_eq!(read[0], format!("call_0: Error: [here] panicked: {text}"));
        assert_eq!(read[1], format!("call_1: Error: [there] panicked: {text}"));
        assert_eq!(read[2], r#"call_2: {"n":1}"#);
        // In a provider: the error of that call.
        let model = Scripted::computed(move |_: &Request| {
            panic();
            Reply::text("never")
        });
        let runtime = team(model, ["a"]).build().unwrap();
        let error = runtime.run("a", "go").await.unwrap_err();
        assert_eq!(error.error, CallError::Panicked { name: "a".into(), message: text.into() });
        assert_eq!(path(&error.log).len(), 2);
        runtime.idle().await;
    }
}

#[tokio::test]
async fn fault_43_a_panic_while_a_reply_is_awaited_and_one_of_a_person_are_errors_too() {
    let model = Scripted::new()
        .replies(
            "a",
            [
                ScriptedReply::from(Reply::call_agent("user", "?")),
                Reply::call_agent("b", "x").into(),
                Reply::text("done").into(),
            ],
        )
        .replies("b", [ScriptedReply::panic("model down").after(Duration::from_millis(1))]);
    let person = |_: Arc<agentouto::Forward>| async { if true { panic!("no hands") } else { Ok("") } };
    let report = team(model, ["a", "b"]).user("user", "", person).build().unwrap().run("a", "go").await.unwrap();
    assert_eq!(path(&report.log)[2], "a < user: error: `user` panicked: no hands");
    assert_eq!(path(&report.log)[4], "a < b: error: `b` panicked: model down");
}

#[tokio::test]
async fn fault_43_a_panic_while_something_is_dropped_is_contained_too() {
    struct Grenade;
    impl Drop for Grenade {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "a panic in a drop");
        }
    }
    let grenade = || {
        tool::function("grenade", "", |_: NoArguments| async {
            let _grenade = Grenade;
            "never read"
        })
    };
    let read = read_after(Reply::tool("grenade", json!({})), |builder| builder.tool(grenade())).await;
    assert_eq!(read, ["call_0: Error: [grenade] panicked: a panic in a drop"]);

    // And when it goes off because the call is cancelled.
    let (sender, mut started) = mpsc::unbounded_channel();
    let parked = tool::function("parked", "", move |_: NoArguments| {
        let sender = sender.clone();
        async move {
            let _grenade = Grenade;
            sender.send(()).unwrap();
            std::future::pending::<()>().await;
        }
    });
    let model = Scripted::new().replies("a", [Reply::tool("parked", json!({}))]).replies("b", [Reply::text("alive")]);
    let runtime = team(model, ["a", "b"]).tool(parked).build().unwrap();
    let running = tokio::spawn(runtime.user("alice").forward("a", "go"));
    started.recv().await.unwrap();
    running.abort();
    runtime.idle().await;
    assert_eq!(&*runtime.run("b", "are you there?").await.unwrap().output, "alive");
}

#[tokio::test]
async fn fault_43_a_panic_in_the_drop_of_one_tool_leaves_nothing_beside_it_alive_or_without_its_outcome() {
    struct Grenade;
    impl Drop for Grenade {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "a panic in a drop");
        }
    }
    for order in [["call", "gate", "grenade"], ["grenade", "call", "gate"], ["gate", "grenade", "call"]] {
        let (sender, mut said) = mpsc::unbounded_channel();
        let begun = sender.clone();
        let grenade = tool::function("grenade", "", move |_: NoArguments| {
            let begun = begun.clone();
            async move {
                let _grenade = Grenade;
                begun.send("started").unwrap();
                std::future::pending::<()>().await;
            }
        });
        let gate = PendingTool::new(move |signal| {
            // A test that is over no longer hears.
            let _ = sender.send(signal);
        });
        let model = Scripted::computed(move |request: &Request| match &*request.agent.name {
            "a" => order.iter().fold(Reply::default(), |reply, action| match *action {
                "call" => reply.and_call_agent("b", "x"),
                tool => reply.and_tool(tool, json!({})),
            }),
            _ => Reply::tool("gate", json!({})),
        });
        let runtime = team(model, ["a", "b"]).tool(grenade).tool(gate).build().unwrap();
        let mut call = runtime.user("alice").forward("a", "go");
        tokio::select! {
            _ = &mut call => panic!("it cannot have ended"),
            () = async { for _ in 0..3 { assert_eq!(said.recv().await, Some("started")) } } => {}
        }
        call.cancel();
        let error = call.await.unwrap_err();
        assert_eq!((error.error, odd_in_log(&error.log)), (CallError::Cancelled, vec![]), "{order:?}");
        let dropped: Vec<_> = std::iter::from_fn(|| said.try_recv().ok()).collect();
        assert_eq!(dropped, ["dropped", "dropped"], "the tool of `a` and the tool of `b`, {order:?}");
        assert_eq!(runtime.invocations(), 0);
    }
}

#[tokio::test]
async fn fault_43_a_panic_whose_payload_panics_when_it_is_dropped_is_an_error_as_any_other() {
    struct Payload;
    impl Drop for Payload {
        fn drop(&mut self) {
            panic!("a panic in the drop of a payload");
        }
    }
    fn explode() {
        std::panic::panic_any(Payload);
    }
    let reply = Reply::tool("here", json!({})).and_tool("there", json!({})).and_tool("echo", json!({"n": 1}));
    let read = read_after(reply, |builder| {
        builder
            .tool(tool::function("here", "", |_: NoArguments| async { explode() }))
            .tool(tool::blocking("there", "", |_: NoArguments| explode()))
            .tool(echo())
    })
    .await;
    assert_eq!(
        read,
        [
            "call_0: Error: [here] panicked: a value that is not text",
            "call_1: Error: [there] panicked: a value that is not text",
            r#"call_2: {"n":1}"#,
        ]
    );

    let model = Scripted::computed(|_: &Request| {
        explode();
        Reply::text("never")
    });
    let person = |_: Arc<agentouto::Forward>| async {
        explode();
        Ok("never")
    };
    let runtime = team(model, ["a"]).user("bob", "", person).build().unwrap();
    for callee in ["a", "bob"] {
        let error = runtime.run(callee, "go").await.unwrap_err();
        assert_eq!(
            error.error,
            CallError::Panicked { name: callee.into(), message: "a value that is not text".into() }
        );
        assert_eq!(path(&error.log).len(), 2);
    }
    runtime.idle().await;
}

#[test]
fn fault_44_panic_abort_is_refused_when_the_crate_is_compiled() {
    let compile = |strategy: &str| {
        let out = std::env::temp_dir().join(format!("agentouto-panic-{strategy}-{}", std::process::id()));
        let output = std::process::Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
            .args([
                "--edition",
                "2024",
                "--crate-type",
                "lib",
                "--emit",
                "metadata",
                "-C",
                &format!("panic={strategy}"),
                "-o",
            ])
            .arg(&out)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/lib.rs"))
            .output()
            .unwrap();
        let _ = std::fs::remove_file(out);
        String::from_utf8(output.stderr).unwrap()
    };
    // Both miss the dependencies; only one is told about panics.
    let refusal = "agentouto turns panics into error Returns";
    assert!(compile("abort").contains(refusal));
    assert!(!compile("unwind").contains(refusal));
}

#[tokio::test]
async fn fault_55_a_tool_that_blocks_an_async_thread_is_reported() {
    let model = Scripted::new().replies("a", [Reply::tool("block", json!({})), Reply::text("done")]);
    let block = tool::function("block", "", |_: NoArguments| async {
        std::thread::sleep(Duration::from_millis(150));
    });
    let runtime = team(model, ["a"]).tool(block).build().unwrap();
    let mut events = runtime.events(100);
    runtime.run("a", "go").await.unwrap();
    let blocked = std::iter::from_fn(|| events.try_next()).find_map(|event| match event.kind {
        EventKind::Blocked { what, duration } => Some((what, duration)),
        _ => None,
    });
    let (what, duration) = blocked.expect("it is reported");
    assert_eq!(&*what, "tool `block`");
    assert!(duration >= Duration::from_millis(150));
}

#[tokio::test]
async fn fault_55_a_provider_that_blocks_an_async_thread_is_reported() {
    struct Blocking;
    impl Provider for Blocking {
        fn reply<'a>(
            &'a self,
            _: &'a Request,
            _: &'a mut DeltaSink<'_>,
        ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
            Box::pin(async {
                std::thread::sleep(Duration::from_millis(150));
                Ok(Reply::text("done"))
            })
        }
    }
    let runtime = RuntimeBuilder::default().provider("slow", Blocking).agent(Agent::new("a", "")).build().unwrap();
    let mut events = runtime.events(100);
    runtime.run("a", "go").await.unwrap();
    let blocked: Vec<_> = std::iter::from_fn(|| events.try_next())
        .filter_map(|event| match event.kind {
            EventKind::Blocked { what, duration } => Some((what, duration)),
            _ => None,
        })
        .collect();
    assert_eq!(blocked.len(), 1);
    assert_eq!(&*blocked[0].0, "provider `slow`");
    assert!(blocked[0].1 >= Duration::from_millis(150));
}

#[test]
fn fault_56_where_no_more_files_can_be_opened_a_tool_fails_and_the_runtime_goes_on() {
    const NAME: &str = "faults::fault_56_where_no_more_files_can_be_opened_a_tool_fails_and_the_runtime_goes_on";
    if std::env::var_os("AGENTOUTO_FEW_FILES").is_none() {
        // The limit is that of a process: this test again, in one of its own.
        let status = std::process::Command::new("sh")
            .args(["-c", r#"ulimit -n 64 && exec "$0" --exact "$1""#])
            .arg(std::env::current_exe().unwrap())
            .arg(NAME)
            .env("AGENTOUTO_FEW_FILES", "1")
            .status();
        assert!(status.unwrap().success());
        return;
    }
    on_threads(2, async {
        let all: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
        assert!(!all.is_empty());
        let open = |_: NoArguments| std::fs::File::open("/dev/null").map(drop);
        let reply = Reply::tool("open", json!({})).and_tool("block", json!({}));
        let read = read_after(reply, |builder| {
            builder
                .tool(tool::function("open", "", move |no| std::future::ready(open(no))))
                .tool(tool::blocking("block", "", open))
        })
        .await;
        assert!(read[0].starts_with("call_0: Error: [open] Too many open files"), "{read:?}");
        assert!(read[1].starts_with("call_1: Error: [block] Too many open files"), "{read:?}");
    });
}

#[tokio::test]
async fn fault_58_an_error_from_twenty_thousand_levels_below_is_no_longer_than_at_its_origin() {
    let error = ProviderError::new(ProviderErrorKind::Unavailable, "overloaded");
    let model = Scripted::computed(move |request: &Request| {
        let last = request.context.messages().last();
        match (last, request.context.input().parse::<usize>()) {
            (Some(ChatMessage::Tool { output, .. }), _) => {
                // Every level fails with what it was told, as an agent does that gives up.
                let told = output.content.text.trim_start_matches("Error: [fake] ");
                ScriptedReply::error(ProviderError::new(ProviderErrorKind::Other, told))
            }
            (_, Ok(0)) => ScriptedReply::error(error.clone()),
            (_, Ok(left)) => Reply::call_agent("a", &(left - 1).to_string()).into(),
            (_, Err(_)) => Reply::text("not a number").into(),
        }
    });
    let failed = team(model, ["a"]).build().unwrap().run("a", "20000").await.unwrap_err();
    assert_eq!(failed.to_string(), "[fake] overloaded");
    assert_eq!(failed.log.messages().count(), 2 * 20_001);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_59_a_long_history_is_shared_by_all_that_get_it() {
    let history: Arc<[ChatMessage]> = (0..100_000).map(|n| ChatMessage::user(n.to_string())).collect();
    let (sender, mut seen) = mpsc::unbounded_channel();
    let first = std::ptr::from_ref(&history[0]) as usize;
    let model = Scripted::computed(move |request: &Request| {
        let shown = request.context.messages().next().map(std::ptr::from_ref).map(|message| message as usize);
        sender.send((shown == Some(first), request.context.messages().count())).unwrap();
        Reply::text("ok")
    });
    let runtime = team(model, ["a"]).build().unwrap();
    let user = runtime.user("alice");
    let calls = (0..1_000).map(|_| user.forward("a", "and now?").history(Arc::clone(&history)));
    for ended in futures_util::future::join_all(calls).await {
        assert_eq!(&*ended.unwrap().output, "ok");
    }
    drop(user);
    for _ in 0..1_000 {
        assert_eq!(seen.recv().await, Some((true, 100_001)), "the very same message, not a copy");
    }
}
