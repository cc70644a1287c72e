//! Agents, users and actors call each other as equals.

use std::sync::Arc;
use std::time::Duration;

use agentouto::providers::scripted::Scripted;
use agentouto::tool::{self, NoArguments};
use agentouto::{
    Agent, Arguments, Attachment, AttachmentKind, BoxFuture, BuildError, CallError, CallId, Caller, ChatMessage,
    Content, EventKind, Forward, Incoming, Message, Reply, ReplyPort, Request, Runtime, Tool, ToolContext, ToolError,
    ToolSpec,
};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::json;
use tokio::time::timeout;

use crate::silent_actor::silent;
use crate::team::{With, let_all_tasks_run, path, team};

#[tokio::test]
async fn a_peer_answers_its_caller_and_nobody_else() {
    let model = Scripted::new()
        .replies("researcher", [Reply::call_agent("writer", "write it"), Reply::finish("done")])
        .replies("writer", [Reply::finish("a draft")]);
    let report =
        team(model, ["researcher", "writer"]).build().unwrap().run("researcher", "report, please").await.unwrap();
    assert_eq!(&*report.output, "done");
    assert_eq!(
        path(&report.log),
        [
            "user > researcher: report, please",
            "researcher > writer: write it",
            "researcher < writer: a draft",
            "user < researcher: done"
        ]
    );
}

#[tokio::test]
async fn a_user_who_can_be_called_is_asked_on_the_same_path_as_an_agent() {
    let model =
        Scripted::new().replies("buyer", [Reply::call_agent("user", "Shall I buy it?"), Reply::text("as you wish")]);
    let runtime = team(model, ["buyer"])
        .user("user", "The person who asked.", |forward: Arc<Forward>| async move {
            Ok(format!("{} asks {:?}: yes", forward.sender, &*forward.content.text))
        })
        .build()
        .unwrap();
    let report = runtime.run("buyer", "a bicycle").await.unwrap();
    assert_eq!(path(&report.log)[2], "buyer < user: buyer asks \"Shall I buy it?\": yes");
}

#[tokio::test]
async fn a_user_nobody_answers_for_cannot_be_called() {
    let model = Scripted::new().replies("buyer", [Reply::call_agent("user", "Shall I?"), Reply::text("never mind")]);
    let runtime = team(model, ["buyer"]).build().unwrap();
    let mut events = runtime.events(100);
    let report = runtime.run("buyer", "go").await.unwrap();
    assert_eq!(path(&report.log), ["user > buyer: go", "user < buyer: never mind"], "a Forward to nobody is not sent");
    let undelivered =
        |event: agentouto::Event| matches!(event.kind, EventKind::Undelivered { agent } if &*agent == "user");
    assert!(std::iter::from_fn(|| events.try_next()).any(undelivered));
}

#[tokio::test]
async fn what_a_person_says_wrong_is_what_the_model_reads() {
    let model = Scripted::new().replies("buyer", [Reply::call_agent("user", "Shall I?"), Reply::text("never mind")]);
    let no = |_: Arc<Forward>| async { Err::<String, _>(CallError::failed("ask somebody else")) };
    let runtime = team(model, ["buyer"]).user("user", "Somebody.", no).build().unwrap();
    let report = runtime.run("buyer", "go").await.unwrap();
    assert_eq!(path(&report.log)[2], "buyer < user: error: ask somebody else");
}

/// An actor that asks an agent before it answers.
struct Clerk;

struct SilentMessage(Incoming);

impl From<Incoming> for SilentMessage {
    fn from(incoming: Incoming) -> Self {
        Self(incoming)
    }
}

impl Actor for Clerk {
    type Msg = SilentMessage;
    type State = Vec<ReplyPort>;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<SilentMessage>, (): ()) -> Result<Vec<ReplyPort>, ActorProcessingErr> {
        Ok(Vec::new())
    }

    async fn handle(
        &self,
        me: ActorRef<SilentMessage>,
        letter: SilentMessage,
        kept: &mut Vec<ReplyPort>,
    ) -> Result<(), ActorProcessingErr> {
        let SilentMessage(Incoming { forward, caller, reply, .. }) = letter;
        match &*forward.content.text {
            "drop" => drop(reply),
            "keep and stop" => {
                kept.push(reply);
                me.stop(None);
            }
            "fail" => reply.send(Err::<Content, _>(CallError::failed("no such file"))),
            question => reply.send(caller.call_agent("expert", question).await),
        }
        Ok(())
    }
}

#[tokio::test]
async fn an_actor_is_called_by_agents_and_calls_agents() {
    let model = Scripted::new()
        .replies("boss", [Reply::call_agent("clerk", "how much?"), Reply::text("good")])
        .replies("expert", [Reply::text("42")]);
    let (clerk, stopped) = Clerk::spawn(None, Clerk, ()).await.unwrap();
    let runtime = team(model, ["boss", "expert"]).actor("clerk", "Knows whom to ask.", clerk.clone()).build().unwrap();
    let report = runtime.run("boss", "go").await.unwrap();
    assert_eq!(
        path(&report.log)[1..5],
        ["boss > clerk: how much?", "clerk > expert: how much?", "clerk < expert: 42", "boss < clerk: 42"]
    );
    let messages: Vec<_> = report.log.messages().collect();
    let (Message::Forward(to_clerk), Message::Forward(to_expert)) = (messages[1], messages[2]) else {
        panic!("{messages:?}")
    };
    assert_eq!(to_expert.parent, Some(to_clerk.call_id));
    clerk.stop(None);
    stopped.await.unwrap();
}

#[tokio::test]
async fn an_actor_joins_a_runtime_that_is_at_work_and_leaves_it() {
    let (clerk, _) = Clerk::spawn(None, Clerk, ()).await.unwrap();
    let runtime = team(Scripted::computed(|_: &Request| Reply::text("42")), ["expert"]).build().unwrap();
    let ask = async || runtime.run("clerk", "how much?").await.map(|report| report.output);
    let unknown = ask().await.unwrap_err().error;
    runtime.join_actor("clerk", "Knows whom to ask.", clerk.clone()).unwrap();
    assert_eq!(&*ask().await.unwrap(), "42");
    assert!(runtime.leave("clerk"));
    assert_eq!(ask().await.unwrap_err().error, unknown);
    clerk.stop(None);
}

#[tokio::test]
async fn calls_that_actors_answered_leave_no_tasks() {
    let (clerk, _) = Clerk::spawn(None, Clerk, ()).await.unwrap();
    let model = Scripted::computed(|_: &Request| Reply::text("42"));
    let runtime = team(model, ["expert"]).actor("clerk", "Knows whom to ask.", clerk.clone()).build().unwrap();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for _ in 0..10 {
        runtime.user("alice").caller().call_agent("clerk", "go").await.unwrap();
    }
    let_all_tasks_run().await;
    assert_eq!(tasks(), before);
    clerk.stop(None);
}

#[tokio::test]
async fn an_actor_that_does_not_answer_is_an_error_and_never_a_hang() {
    let ask = |question: &'static str| async move {
        let (clerk, stopped) = Clerk::spawn(None, Clerk, ()).await.unwrap();
        let runtime = Runtime::builder().actor("clerk", "", clerk.clone()).build().unwrap();
        let error = runtime.run("clerk", question).await.unwrap_err();
        clerk.stop(None);
        stopped.await.unwrap();
        let afterwards = runtime.run("clerk", "are you there?").await.unwrap_err();
        assert_eq!(afterwards.to_string(), "`clerk` could not be reached: the actor has stopped");
        error.error
    };
    assert_eq!(ask("drop").await, CallError::Unanswered { name: "clerk".into() });
    assert_eq!(ask("keep and stop").await, CallError::Unanswered { name: "clerk".into() });
    assert_eq!(ask("fail").await, CallError::failed("no such file"));
}

/// An actor that awaits another, which never answers, in its handler: it is free again when the user drops the call.
#[tokio::test(start_paused = true)]
async fn an_actor_that_awaits_another_in_its_handler_is_free_again_when_the_call_is_dropped() {
    let (expert, mut said) = silent().await;
    let (clerk, _) = Clerk::spawn(None, Clerk, ()).await.unwrap();
    let runtime = Runtime::builder().actor("clerk", "", clerk).actor("expert", "", expert).build().unwrap();
    let asking = tokio::spawn(runtime.user("alice").forward("clerk", "how much?"));
    assert_eq!(said.recv().await, Some("asked"));
    asking.abort();
    let next = timeout(Duration::from_secs(60), runtime.run("clerk", "fail")).await.expect("it is free");
    assert_eq!(next.unwrap_err().error, CallError::failed("no such file"));
    assert_eq!(runtime.invocations(), 0);
}

#[tokio::test(start_paused = true)]
async fn fault_51_an_actor_that_drains_while_it_waits_for_a_call_ends_when_its_caller_cancels() {
    let (expert, mut said) = silent().await;
    let (clerk, stopped) = Clerk::spawn(None, Clerk, ()).await.unwrap();
    let runtime = Runtime::builder().actor("clerk", "", clerk.clone()).actor("expert", "", expert).build().unwrap();
    let asking = tokio::spawn(runtime.user("alice").forward("clerk", "how much?"));
    assert_eq!(said.recv().await, Some("asked"));
    clerk.drain().unwrap();
    asking.abort();
    timeout(Duration::from_secs(60), stopped).await.expect("it ends").unwrap();
    runtime.idle().await;
}

/// An actor that serves while it waits: it spawns a task for each call that it makes.
struct Spawning;

impl Actor for Spawning {
    type Msg = Incoming;
    type State = u32;
    type Arguments = u32;

    async fn pre_start(&self, _: ActorRef<Incoming>, parts: u32) -> Result<u32, ActorProcessingErr> {
        Ok(parts)
    }

    async fn handle(
        &self,
        _: ActorRef<Incoming>,
        incoming: Incoming,
        parts: &mut u32,
    ) -> Result<(), ActorProcessingErr> {
        let Incoming { forward, caller, reply, .. } = incoming;
        if &*forward.sender == "clerk" {
            reply.send(Ok::<_, CallError>(parts.to_string()));
            return Ok(());
        }
        *parts -= 1;
        let question = format!("{parts} are left");
        tokio::spawn(async move { reply.send(caller.call_agent("clerk", question).await) });
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn an_actor_that_spawns_what_it_waits_for_answers_its_own_callee_meanwhile() {
    let model = Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
        ("planner", 0) => Reply::call_agent("stock", "how many?"),
        ("clerk", 0) => Reply::call_agent("stock", "is that so?"),
        _ => Reply::text(format!("{}, really", request.context.input())),
    });
    let (stock, _) = Spawning::spawn(None, Spawning, 43).await.unwrap();
    let runtime = team(model, ["planner", "clerk"]).actor("stock", "", stock).build().unwrap();
    // The clock is paused: a cycle that waits for itself is late at once.
    let run = timeout(Duration::from_secs(60), runtime.run("planner", "go")).await.expect("no deadlock").unwrap();
    assert_eq!(
        path(&run.log)[1..7],
        [
            "planner > stock: how many?",
            "stock > clerk: 42 are left",
            "clerk > stock: is that so?",
            "clerk < stock: 42",
            "stock < clerk: 42 are left, really",
            "planner < stock: 42 are left, really"
        ]
    );
}

#[tokio::test]
async fn peers_join_and_leave_while_an_invocation_sees_the_roster_with_which_it_began() {
    let (sender, mut prompts) = tokio::sync::mpsc::unbounded_channel();
    let model = Scripted::computed(move |request: &Request| {
        sender.send(request.context.system().to_owned()).unwrap();
        match (&*request.agent.name, request.context.turns()) {
            ("a", 0) => Reply::tool("change", json!({})).and_call_agent("b", "1"),
            ("a", 1) => Reply::call_agent("b", "2").and_call_agent("c", "3"),
            _ => Reply::text("ok"),
        }
    });
    let runtime = team(model, ["a", "b"]);
    let handle: Arc<std::sync::OnceLock<Runtime>> = Arc::default();
    let inside = Arc::clone(&handle);
    let change = tool::function("change", "Changes who there is.", move |_: NoArguments| {
        let runtime = inside.get().unwrap().clone();
        async move {
            runtime.join(Agent::new("c", "New.")).unwrap();
            runtime.leave("b");
        }
    });
    let runtime = runtime.tool(change).build().unwrap();
    handle.set(runtime.clone()).unwrap();
    let report = runtime.run("a", "go").await.unwrap();

    let first = prompts.recv().await.unwrap();
    let mut later = Vec::new();
    while let Ok(prompt) = prompts.try_recv() {
        later.push(prompt);
    }
    assert_eq!(later.iter().filter(|prompt| **prompt == first).count(), 2, "the prompt of `a` stays as it was");
    assert!(
        later.iter().any(|prompt| prompt.starts_with("You are \"c\". New.\n\nAvailable agents:\n- a: ")),
        "{later:?}"
    );
    assert!(!path(&report.log).iter().any(|line| line == "a > b: 2"), "`b` has left");
    assert!(path(&report.log).iter().any(|line| line == "a < c: ok"));
    assert!(!runtime.leave("b"));
}

/// Who keeps what a seeded run said finds it again by the same ids, in the next version as well.
#[test]
fn the_ids_of_a_seed_stay_what_they_are() {
    let mut ids = CallId::seeded(7);
    assert_eq!(
        [ids(), ids()].map(|id| id.to_string()),
        ["c1ebb25b-3101-8c2f-be67-acbf20361a4f", "72577390-4720-849a-9866-ecb9340592bf"]
    );
}

#[tokio::test]
async fn a_seeded_run_repeats_every_id_whatever_the_threads_do() {
    let ids = || async {
        let model = Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
            ("a", 0) => (0..50).fold(Reply::default(), |reply, n| reply.and_call_agent("b", &n.to_string())),
            ("b", 0) => Reply::call_agent("c", request.context.input()),
            _ => Reply::text("ok"),
        });
        let runtime = team(model, ["a", "b", "c"]).call_ids(CallId::seeded(7)).build().unwrap();
        let spawned = tokio::spawn(async move { runtime.run("a", "go").await.unwrap() });
        let log = spawned.await.unwrap().log;
        let mut ids: Vec<_> = log
            .messages()
            .filter_map(|message| match message {
                Message::Forward(forward) => {
                    Some((forward.content.to_string(), forward.receiver.clone(), forward.call_id))
                }
                Message::Return(_) => None,
            })
            .collect();
        ids.sort();
        ids
    };
    let first = ids().await;
    assert_eq!(first.len(), 101);
    let unique: std::collections::HashSet<_> = first.iter().map(|(.., id)| id).collect();
    assert_eq!(unique.len(), 101);
    let again = tokio::task::spawn_blocking(move || {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(ids())
    });
    assert_eq!(again.await.unwrap(), first);
}

/// Runs an agent that calls in three turns, by itself, by tools and by an actor.
async fn run_of_many_calls() -> agentouto::Log {
    let twice = With("twice", |context: ToolContext| async move {
        let first = context.caller.call_agent("b", "1").await?;
        let (second, third) = tokio::join!(context.caller.call_agent("b", "2"), context.caller.call_agent("b", "3"));
        Ok(format!("{first} {} {}", second?, third?).into())
    });
    let model = Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
        ("a", 0 | 1) => Reply::call_agent("b", "x").and_call_agent("b", "y").and_call_agent("clerk", "z"),
        ("a", 2) => Reply::tool("twice", json!({})).and_tool("twice", json!({})),
        _ => Reply::text("ok"),
    });
    let (clerk, stopped) = Clerk::spawn(None, Clerk, ()).await.unwrap();
    let runtime = team(model, ["a", "b", "expert"]).actor("clerk", "", clerk.clone()).tool(twice).build().unwrap();
    let report = runtime.run("a", "go").await.unwrap();
    clerk.stop(None);
    stopped.await.unwrap();
    report.log
}

#[tokio::test]
async fn all_calls_of_a_run_differ_in_their_ids_and_know_the_call_they_were_made_for() {
    let log = run_of_many_calls().await;
    let tree = log.tree();
    // The root, two turns of three calls and one of the clerk's each, and two tools with three calls each.
    let ids: std::collections::HashSet<_> = tree.calls().iter().map(|call| call.call_id).collect();
    assert_eq!((tree.calls().len(), ids.len()), (1 + 2 * 4 + 2 * 3, 1 + 2 * 4 + 2 * 3));
    for call in tree.calls() {
        let parent = call.parent.map(|parent| &*tree.calls()[parent].receiver);
        let expected = match &*call.receiver {
            "a" => None,
            "expert" => Some("clerk"),
            _ => Some("a"),
        };
        assert_eq!(parent, expected, "{}", call.receiver);
    }
}

#[tokio::test]
async fn a_return_says_the_same_of_its_call_as_the_forward_does() {
    let log = run_of_many_calls().await;
    let forwards = log.messages().filter_map(|message| match message {
        Message::Forward(forward) => Some((forward.call_id, forward)),
        Message::Return(_) => None,
    });
    let forwards: std::collections::HashMap<_, _> = forwards.collect();
    let mut returns = 0;
    for message in log.messages() {
        let Message::Return(answer) = message else { continue };
        let forward = forwards[&answer.call_id];
        assert_eq!(answer.parent, forward.parent);
        assert_eq!((&answer.sender, &answer.receiver), (&forward.receiver, &forward.sender));
        returns += 1;
    }
    assert_eq!((returns, forwards.len()), (15, 15));
    assert_eq!(forwards.values().filter(|forward| forward.parent.is_none()).count(), 1);
}

#[tokio::test]
async fn attachments_and_history_reach_the_model_and_attachments_of_tools_and_users_come_back() {
    let picture = Attachment::inline(AttachmentKind::Image, "image/png", b"png").named("a.png");
    let sound = Attachment::url(AttachmentKind::Audio, "https://example.org/a.wav");
    let (sender, mut contexts) = tokio::sync::mpsc::unbounded_channel();
    let model = Scripted::computed(move |request: &Request| {
        sender.send(request.context.messages().cloned().collect::<Vec<_>>()).unwrap();
        match request.context.turns() {
            0 => Reply::tool("listen", json!({})),
            _ => Reply::text("seen and heard"),
        }
    });
    let spec = ToolSpec { name: "listen".into(), description: "".into(), parameters: json!({"type": "object"}) };
    let heard = sound.clone();
    let tool = tool::from_spec(spec, move |_| std::future::ready(Content::from("heard").attach(heard.clone())));
    let runtime = team(model, ["a"]).tool(tool).build().unwrap();
    let history = [ChatMessage::user("earlier"), ChatMessage::assistant("indeed")];
    let call =
        runtime.user("alice").forward("a", Content::from("look").attach(picture.clone())).history(history.clone());
    call.await.unwrap();

    let first = contexts.recv().await.unwrap();
    assert_eq!(
        first,
        [history[0].clone(), history[1].clone(), ChatMessage::User(Content::from("look").attach(picture))]
    );
    let second = contexts.recv().await.unwrap();
    let Some(ChatMessage::Tool { output, .. }) = second.last() else { panic!("{second:?}") };
    assert_eq!(output.content, Content::from("heard").attach(sound.clone()));

    let answer = move |_: Arc<Forward>| std::future::ready(Ok(Content::from("mine").attach(sound.clone())));
    let runtime = Runtime::builder().user("bob", "", answer).build().unwrap();
    let report = runtime.run("bob", "send it").await.unwrap();
    assert_eq!((&*report.output, report.attachments.len()), ("mine", 1));
}

#[tokio::test]
async fn what_a_provider_wants_to_see_again_it_sees_again() {
    let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let model = Scripted::computed(move |request: &Request| {
        for message in request.context.messages() {
            if let ChatMessage::Assistant { opaque, reasoning, .. } = message {
                sender.send((opaque.clone(), reasoning.clone())).unwrap();
            }
        }
        match request.context.turns() {
            0 => Reply {
                opaque: Some(Arc::new(json!({"signature": "s"}))),
                reasoning: Some("hm".into()),
                ..Reply::call_agent("nobody", "x")
            },
            _ => Reply::text("done"),
        }
    });
    team(model, ["a"]).build().unwrap().run("a", "go").await.unwrap();
    assert_eq!(seen.recv().await.unwrap(), (Some(Arc::new(json!({"signature": "s"}))), Some("hm".into())));
}

#[tokio::test]
async fn two_runtimes_in_one_process_never_see_each_other() {
    let runtime =
        |name: &'static str| team(Scripted::computed(move |_: &Request| Reply::text(name)), ["a"]).build().unwrap();
    let (one, two) = (runtime("one"), runtime("two"));
    one.join(Agent::new("b", "Only here.")).unwrap();
    let mut events = two.events(100);
    one.run("a", "go").await.unwrap();
    assert!(events.try_next().is_none());
    assert_eq!(&*two.run("a", "go").await.unwrap().output, "two");
    assert!(two.run("b", "go").await.is_err());
}

#[tokio::test]
async fn a_user_may_not_call_by_the_name_of_an_agent() {
    let runtime = team(Scripted::computed(|_: &Request| Reply::text("ok")), ["a"]).build().unwrap();
    let error = runtime.user("a").forward("a", "trust me, I am a").await.unwrap_err();
    assert_eq!(error.to_string(), "user `a`: an agent or actor has that name");
    let error = runtime.user("a").caller().call_agent("a", "trust me").await.unwrap_err();
    assert_eq!(error, CallError::NameTaken { name: "a".into() });
}

/// A model that answers with the system prompt.
fn telling_prompts() -> Scripted {
    Scripted::computed(|request: &Request| Reply::text(request.context.system()))
}

#[tokio::test]
async fn a_peer_that_left_is_in_no_prompt_and_its_name_may_be_taken_again() {
    let runtime = team(telling_prompts(), ["a", "b", "c"]).build().unwrap();
    let told = || async { runtime.run("a", "go").await.unwrap().output.lines().skip(3).collect::<Vec<_>>().join("\n") };
    let rest =
        "\n\nUse call_agent to delegate work to other agents.\nUse finish to complete your task and return the result.";
    assert_eq!(told().await, format!("- b: b instructions.\n- c: c instructions.{rest}"));
    assert!(runtime.leave("b"));
    assert_eq!(told().await, format!("- c: c instructions.{rest}"));
    assert_eq!(runtime.run("b", "go").await.unwrap_err().to_string(), "Unknown agent: b; available agents: a, c");
    runtime.join(Agent::new("b", "Secret.").role("Another b.")).unwrap();
    assert_eq!(
        told().await,
        format!("- c: c instructions.\n- b: Another b.{rest}"),
        "in the order in which they joined"
    );
    assert!(runtime.run("b", "go").await.unwrap().output.starts_with("You are \"b\". Secret.\n"));
    assert!(runtime.join(Agent::new("b", "A third.")).is_err());
}

#[tokio::test]
async fn an_agent_that_is_replaced_while_its_call_is_sent_is_never_told_what_the_other_is() {
    /// Replaces an agent when an event is shown: in the middle of the sending of a Forward.
    struct Replace(Runtime, std::sync::atomic::AtomicBool);
    impl std::task::Wake for Replace {
        fn wake(self: Arc<Self>) {
            if !self.1.swap(true, std::sync::atomic::Ordering::SeqCst) {
                self.0.leave("x");
                self.0.join(Agent::new("x", "New.")).unwrap();
                self.0.join(Agent::new("y", "New too.")).unwrap();
            }
        }
    }
    let runtime = team(telling_prompts(), ["x"]).build().unwrap();
    let mut events = runtime.events(100);
    let waker = Arc::new(Replace(runtime.clone(), false.into())).into();
    let mut next = Box::pin(events.next());
    assert!(next.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
    let caller = runtime.user("u").caller();
    let first = caller.call_agent("x", "1").await.unwrap().to_string();
    assert!(
        first.starts_with("You are \"x\". x instructions.\n\nUse call_agent"),
        "the old one with the old roster: {first}"
    );
    for _ in 0..2 {
        let later = caller.call_agent("x", "2").await.unwrap().to_string();
        assert!(later.starts_with("You are \"x\". New.\n\nAvailable agents:\n- y: New too."), "{later}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_replaced_all_the_time_is_told_its_own_instructions() {
    let model = Scripted::computed(|request: &Request| {
        let told = request.context.system().lines().next().unwrap().to_owned();
        let is_own = told == format!("You are \"x\". {}", request.agent.instructions);
        Reply::text(if is_own { String::new() } else { format!("{told} Not: {}", request.agent.instructions) })
    });
    let runtime = team(model, ["x"]).build().unwrap();
    let replacing = tokio::task::spawn_blocking({
        let runtime = runtime.clone();
        move || {
            for n in 0..2_000 {
                runtime.leave("x");
                runtime.join(Agent::new("x", format!("Be number {n}."))).unwrap();
            }
        }
    });
    let caller = runtime.user("u").caller();
    while !replacing.is_finished() {
        match caller.call_agent("x", "go").await {
            Ok(told) => assert_eq!(&*told.text, ""),
            Err(error) => assert!(matches!(error, CallError::UnknownAgent { .. }), "{error}"),
        }
    }
    replacing.await.unwrap();
}

#[tokio::test]
async fn calls_of_one_agent_share_one_prompt_and_all_calls_one_list_of_tools() {
    let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let model = Scripted::computed(move |request: &Request| {
        let prompt = request.context.system().as_ptr() as usize;
        sender.send((Arc::clone(&request.agent.name), prompt, Arc::clone(&request.tools))).unwrap();
        match (&*request.agent.name, request.context.turns()) {
            ("a", 0) => (0..100).fold(Reply::default(), |reply, _| reply.and_call_agent("b", "x")),
            _ => Reply::text("ok"),
        }
    });
    let tool = |name: &str| tool::function(name, "", |_: NoArguments| async {});
    let runtime = team(model, ["a", "b"]).tool(tool("z")).build().unwrap();
    runtime.run("a", "go").await.unwrap();
    runtime.join(Agent::new("c", "")).unwrap();
    runtime.run("c", "go").await.unwrap();
    let seen: Vec<_> = std::iter::from_fn(|| seen.try_recv().ok()).collect();
    assert_eq!(seen.len(), 103);
    let prompts: std::collections::HashSet<_> = seen.iter().map(|(agent, prompt, _)| (agent, prompt)).collect();
    assert_eq!(prompts.len(), 3, "one text for each agent");
    assert!(seen.iter().all(|(.., tools)| Arc::ptr_eq(tools, &seen[0].2)), "an agent that joins changes no tool");
}

#[tokio::test]
async fn tools_are_offered_in_the_order_in_which_they_joined_and_asked_once_what_they_are() {
    struct Counted(&'static str, Arc<std::sync::atomic::AtomicUsize>);
    impl Tool for Counted {
        fn spec(&self) -> ToolSpec {
            self.1.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            ToolSpec { name: self.0.into(), description: "".into(), parameters: json!({"type": "object"}) }
        }
        fn call(&self, _: Arguments, _: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
            Box::pin(async { Ok("".into()) })
        }
    }
    let model = Scripted::computed(|request: &Request| {
        Reply::text(request.tools.iter().map(|spec| &*spec.name).collect::<Vec<_>>().join(" "))
    });
    let asked = Arc::default();
    let runtime = team(model, ["a"]).tool(Counted("z", Arc::clone(&asked))).build().unwrap();
    let offered = || async { runtime.run("a", "go").await.unwrap().output.to_string() };
    runtime.add_tool(Counted("y", Arc::clone(&asked))).unwrap();
    runtime.add_tool(Counted("b", Arc::clone(&asked))).unwrap();
    assert_eq!(offered().await, "z y b call_agent finish");
    assert!(runtime.remove_tool("z") && !runtime.remove_tool("z"));
    let taken = runtime.add_tool(Counted("y", Arc::clone(&asked))).unwrap_err();
    assert_eq!(taken.to_string(), "tool `y`: the name is taken");
    runtime.add_tool(Counted("z", Arc::clone(&asked))).unwrap();
    assert_eq!(offered().await, "y b z call_agent finish");
    assert_eq!(asked.load(std::sync::atomic::Ordering::SeqCst), 5);
}

#[tokio::test]
async fn an_agent_is_reached_by_any_spelling_of_its_name_that_looks_the_same() {
    let runtime = team(telling_prompts(), ["caf\u{e9}"]).build().unwrap();
    let report = runtime.run("cafe\u{301}", "go").await.unwrap();
    assert_eq!(path(&report.log)[0], "user > caf\u{e9}: go", "and is called by its own");
    let twin = runtime.user("cafe\u{301}").forward("caf\u{e9}", "trust me").await.unwrap_err().error;
    assert_eq!(twin, CallError::NameTaken { name: "cafe\u{301}".into() });
}

#[tokio::test]
async fn where_nobody_is_the_error_says_so() {
    let error = Runtime::builder().build().unwrap().run("a", "go").await.unwrap_err();
    assert!(error.to_string().ends_with("there are no agents"), "{error}");
}

#[tokio::test]
async fn a_user_whose_name_could_be_misread_may_not_call() {
    let runtime = team(telling_prompts(), ["a"]).build().unwrap();
    for (name, reason) in [
        ("", "a name must not be empty"),
        ("a\nb", "a name must not have control characters"),
        ("Finish", "the name is reserved"),
        ("\u{202e}nimda", "a name must not have characters that are invisible or turn text around"),
    ] {
        let error = runtime.user(name).forward("a", "hello").await.unwrap_err().error;
        assert_eq!(error, CallError::NameTaken { name: name.into() });
        assert_eq!(error.to_string(), format!("user `{name}`: {reason}"));
    }
    assert!(runtime.user("작가✍️").forward("a", "hello").await.is_ok());
}

#[tokio::test]
async fn a_service_calls_without_a_log_and_several_at_once() {
    let model = Scripted::computed(|request: &Request| Reply::text(format!("did {}", request.context.input())));
    let caller: Caller = team(model, ["a"]).build().unwrap().user("service").caller();
    let (one, two) = tokio::join!(caller.call_agent("a", "one"), caller.call_agent("a", "two"));
    assert_eq!((one.unwrap().to_string(), two.unwrap().to_string()), ("did one".to_owned(), "did two".to_owned()));
}

/// What the builder refuses, and in which words.
mod build {
    use super::*;

    fn check(builder: agentouto::RuntimeBuilder, expected: &str) {
        assert_eq!(
            builder.build().map(|_| ()).map_err(|error: BuildError| error.to_string()),
            Err(expected.to_owned())
        );
    }

    fn fake() -> agentouto::RuntimeBuilder {
        team(Scripted::new(), ["a"])
    }

    #[test]
    fn names_that_are_taken_reserved_or_unfit_are_refused_by_name() {
        let tool = |name: &str| tool::function(name, "", |_: NoArguments| async {});
        check(fake().agent(Agent::new("a", "")), "agent, actor or user `a`: the name is taken");
        check(fake().agent(Agent::new("", "")), "agent ``: a name must not be empty");
        check(fake().agent(Agent::new("user", "")), "agent `user`: the name is reserved");
        check(fake().agent(Agent::new("finish", "")), "agent `finish`: the name is reserved");
        check(fake().agent(Agent::new("a\nb", "")), "agent `a\nb`: a name must not have control characters");
        check(
            fake().agent(Agent::new("x".repeat(65), "")),
            &format!("agent `{}`: a name may have at most 64 characters", "x".repeat(65)),
        );
        check(fake().tool(tool("t")).tool(tool("t")), "tool `t`: the name is taken");
        check(fake().tool(tool("call_agent")), "tool `call_agent`: the name is reserved");
        check(fake().tool(tool("")), "tool ``: a name must not be empty");
        check(fake().provider("fake", Scripted::new()), "provider `fake`: the name is taken");
        check(fake().provider("", Scripted::new()), "provider ``: a name must not be empty");
    }

    #[test]
    fn names_that_could_be_misread_are_refused_for_everything_that_has_a_name() {
        let tool = |name: &str| tool::function(name, "", |_: NoArguments| async {});
        let user = |name: &str| Runtime::builder().user(name, "", |_: Arc<Forward>| async { Ok("") });
        let invisible = "a name must not have characters that are invisible or turn text around";
        check(fake().agent(Agent::new("User", "")), "agent `User`: the name is reserved");
        check(fake().agent(Agent::new("user ", "")), "agent `user `: a name must not begin or end with white space");
        check(fake().agent(Agent::new("b\u{2028}c", "")), &format!("agent `b\u{2028}c`: {invisible}"));
        check(fake().tool(tool("FINISH")), "tool `FINISH`: the name is reserved");
        check(fake().tool(tool("t\u{200b}")), &format!("tool `t\u{200b}`: {invisible}"));
        check(fake().provider("\u{2066}p", Scripted::new()), &format!("provider `\u{2066}p`: {invisible}"));
        check(user("finish"), "user `finish`: the name is reserved");
        check(user(" "), "user ` `: a name must not begin or end with white space");
        let (one, twin) = ("caf\u{e9}", "cafe\u{301}");
        check(
            fake().agent(Agent::new(one, "")).agent(Agent::new(twin, "")),
            &format!("agent, actor or user `{twin}`: the name is taken"),
        );
        check(fake().tool(tool(one)).tool(tool(twin)), &format!("tool `{twin}`: the name is taken"));
        check(
            fake().provider(one, Scripted::new()).provider(twin, Scripted::new()),
            &format!("provider `{twin}`: the name is taken"),
        );
        assert!(fake().agent(Agent::new("작가✍️", "")).tool(tool("검색")).build().is_ok());
    }

    #[test]
    fn an_agent_without_a_registered_provider_is_refused_with_those_there_are() {
        let builder = || Runtime::builder().provider("openai", Scripted::new()).provider("anthropic", Scripted::new());
        check(
            builder().agent(Agent::new("writer", "").provider("opnai")),
            "agent `writer`: unknown provider `opnai`; known are `anthropic`, `openai`",
        );
        check(
            builder().agent(Agent::new("writer", "")),
            "agent `writer`: names no provider; known are `anthropic`, `openai`",
        );
        check(Runtime::builder().agent(Agent::new("writer", "")), "agent `writer`: names no provider; known are none");
    }

    #[test]
    fn a_tool_whose_arguments_are_not_an_object_is_refused() {
        check(
            fake().tool(tool::function("t", "", |_: String| async {})),
            "tool `t`: its parameters must be a JSON Schema with `\"type\": \"object\"`, such as a struct gives",
        );
    }

    #[test]
    fn a_peer_that_cannot_join_leaves_everything_as_it_was() {
        let runtime = fake().build().unwrap();
        assert!(runtime.join(Agent::new("b", "").provider("nobody")).is_err());
        assert!(runtime.join(Agent::new("a", "")).is_err());
        assert!(!runtime.leave("b"));
        assert!(runtime.leave("a"));
    }
}

/// Code of a program that changes a runtime from within it.
mod reentrance {
    use std::sync::OnceLock;

    use super::*;

    /// Does on a thread of its own what would lock it for ever.
    fn check(change: impl FnOnce() + Send + 'static) {
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            change();
            sender.send(()).unwrap();
        });
        receiver.recv_timeout(Duration::from_secs(10)).expect("it comes to an end");
    }

    fn fake() -> Runtime {
        team(Scripted::new(), ["a"]).build().unwrap()
    }

    /// Changes the team when it is dropped, and when it is asked for its specification.
    struct Changing(Runtime, &'static str);

    impl Changing {
        fn change(&self) {
            self.0.leave("a");
            self.0.join(Agent::new("a", "Another.")).unwrap();
            self.0.remove_tool("t");
        }
    }

    impl Drop for Changing {
        fn drop(&mut self) {
            self.change();
        }
    }

    impl agentouto::Answerer for Changing {
        fn answer(&self, _: Arc<Forward>) -> BoxFuture<'static, Result<Content, CallError>> {
            Box::pin(async { Ok("".into()) })
        }
    }

    impl Tool for Changing {
        fn spec(&self) -> ToolSpec {
            self.change();
            ToolSpec { name: self.1.into(), description: "".into(), parameters: json!({"type": "object"}) }
        }

        fn call(&self, _: Arguments, _: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
            Box::pin(async { Ok("".into()) })
        }
    }

    #[test]
    fn a_peer_may_change_the_team_when_it_leaves_or_is_refused() {
        check(|| {
            let runtime = fake();
            runtime.join_user("person", "", Changing(runtime.clone(), "")).unwrap();
            assert!(runtime.join_user("person", "", Changing(runtime.clone(), "")).is_err());
            assert!(runtime.leave("person") && !runtime.leave("person"));
        });
    }

    #[test]
    fn a_tool_may_change_the_team_when_it_joins_leaves_or_is_refused() {
        check(|| {
            let runtime = fake();
            runtime.add_tool(Changing(runtime.clone(), "u")).unwrap();
            assert!(runtime.add_tool(Changing(runtime.clone(), "u")).is_err());
            assert!(runtime.remove_tool("u") && !runtime.remove_tool("u"));
        });
    }

    #[test]
    fn a_source_of_ids_may_call_and_may_panic() {
        check(|| {
            let handle: Arc<OnceLock<Runtime>> = Arc::default();
            let (inside, mut seeded, mut drawn) = (Arc::clone(&handle), CallId::seeded(7), 0);
            let source = move || {
                drawn += 1;
                assert!(drawn != 2, "no more ids");
                let id = inside.get().unwrap().user("u").forward("a", "x").call_id();
                let next = seeded();
                assert_ne!(id, next);
                next
            };
            let runtime = team(Scripted::new(), ["a"]).call_ids(source).build().unwrap();
            handle.set(runtime.clone()).unwrap();
            let draw = || runtime.user("u").forward("a", "x").call_id();
            let mut expected = CallId::seeded(7);
            assert_eq!(draw(), expected());
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(draw)).is_err());
            assert_eq!(draw(), expected(), "it goes on with what it is given");
        });
    }
}
