//! Actors that are replaced, restarted by a supervisor, or call as themselves.

use std::sync::Arc;

use agentouto::providers::scripted::Scripted;
use agentouto::{CallError, Forward, Incoming, Reply, Request, Runtime};
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::{mpsc, oneshot};

use crate::team::{path, team};

/// Answers with its generation and the run that it serves, and crashes when it is told to.
struct Clerk;

enum ClerkMessage {
    Ask(Incoming),
    /// Calls an agent without having been asked.
    Call(Runtime, oneshot::Sender<Result<String, CallError>>),
}

impl From<Incoming> for ClerkMessage {
    fn from(incoming: Incoming) -> Self {
        Self::Ask(incoming)
    }
}

impl Actor for Clerk {
    type Msg = ClerkMessage;
    type State = u32;
    type Arguments = u32;

    async fn pre_start(&self, _: ActorRef<ClerkMessage>, generation: u32) -> Result<u32, ActorProcessingErr> {
        Ok(generation)
    }

    async fn handle(
        &self,
        myself: ActorRef<ClerkMessage>,
        message: ClerkMessage,
        generation: &mut u32,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ClerkMessage::Ask(incoming) if &*incoming.forward.content.text == "crash" => return Err("told to".into()),
            ClerkMessage::Ask(incoming) => {
                let Forward { run, .. } = &*incoming.forward;
                let text = format!("generation {generation} for {}", run.user());
                incoming.reply.send(Ok(text));
            }
            ClerkMessage::Call(runtime, answer) => {
                let me = runtime.actor("clerk", &myself);
                tokio::spawn(async move {
                    let calling = async move {
                        let me = me.ok_or_else(|| CallError::failed("it is no peer"))?;
                        Ok(me.caller().call_agent("a", "hello").await?.text.to_string())
                    };
                    let _ = answer.send(calling.await);
                });
            }
        }
        Ok(())
    }
}

/// Starts the clerk under a registered name again whenever it fails.
struct Supervisor;

impl Actor for Supervisor {
    type Msg = ();
    type State = (String, u32, mpsc::UnboundedSender<u32>);
    type Arguments = (String, mpsc::UnboundedSender<u32>);

    async fn pre_start(
        &self,
        myself: ActorRef<()>,
        (name, started): Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Clerk::spawn_linked(Some(name.clone()), Clerk, 0, myself.get_cell()).await?;
        Ok((name, 0, started))
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<()>,
        event: SupervisionEvent,
        (name, generation, started): &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        if matches!(event, SupervisionEvent::ActorFailed(..)) {
            *generation += 1;
            Clerk::spawn_linked(Some(name.clone()), Clerk, *generation, myself.get_cell()).await?;
            started.send(*generation)?;
        }
        Ok(())
    }
}

async fn ask(runtime: &Runtime, text: &str) -> Result<String, CallError> {
    runtime.user("u").caller().call_agent("clerk", text).await.map(|answer| answer.text.to_string())
}

fn empty() -> Runtime {
    let model = Scripted::computed(|request: &Request| {
        let first = request.context.input().to_owned();
        Reply::text(format!("heard {first}"))
    });
    team(model, ["a"]).build().unwrap()
}

#[tokio::test]
async fn a_restart_by_a_supervisor_is_not_noticed_by_later_calls() {
    let (sender, mut started) = mpsc::unbounded_channel();
    let name = format!("clerk-{}", std::process::id());
    let (supervisor, _) = Supervisor::spawn(None, Supervisor, (name.clone(), sender)).await.unwrap();
    let runtime = empty();
    runtime.join_registered_actor::<ClerkMessage>("clerk", "Answers.", &name).unwrap();
    assert_eq!(ask(&runtime, "?").await.unwrap(), "generation 0 for u");
    for generation in 1..4 {
        let unanswered = CallError::Unanswered { name: "clerk".into() };
        assert_eq!(ask(&runtime, "crash").await, Err(unanswered));
        assert_eq!(started.recv().await, Some(generation));
        assert_eq!(ask(&runtime, "?").await.unwrap(), format!("generation {generation} for u"));
    }
    supervisor.stop_and_wait(None, None).await.unwrap();
    let gone = ask(&runtime, "?").await.unwrap_err();
    assert!(matches!(gone, CallError::Unreachable { .. }), "{gone}");
}

#[tokio::test]
async fn a_registered_actor_of_another_type_gets_no_message() {
    struct Other;
    impl Actor for Other {
        type Msg = String;
        type State = ();
        type Arguments = ();
        async fn pre_start(&self, _: ActorRef<String>, (): ()) -> Result<(), ActorProcessingErr> {
            Ok(())
        }
    }
    let name = format!("other-{}", std::process::id());
    let (other, _) = Other::spawn(Some(name.clone()), Other, ()).await.unwrap();
    let runtime = empty();
    runtime.join_registered_actor::<ClerkMessage>("clerk", "", &name).unwrap();
    let error = ask(&runtime, "?").await.unwrap_err();
    assert_eq!(error.to_string(), "`clerk` could not be reached: no actor of its type is registered");
    other.stop(None);
}

#[tokio::test]
async fn an_actor_is_replaced_under_its_name_and_keeps_its_place_and_role() {
    let runtime = empty();
    let [(one, _), (two, _)] =
        [Clerk::spawn(None, Clerk, 1).await.unwrap(), Clerk::spawn(None, Clerk, 2).await.unwrap()];
    assert!(!runtime.replace_actor("clerk", one.clone()), "nobody has that name");
    runtime.join_actor("clerk", "Answers.", one.clone()).unwrap();
    assert!(!runtime.replace_actor("a", two.clone()), "an agent is not replaced by an actor");
    assert_eq!(ask(&runtime, "?").await.unwrap(), "generation 1 for u");
    assert!(runtime.replace_actor("clerk", two.clone()));
    one.stop(None);
    assert_eq!(ask(&runtime, "?").await.unwrap(), "generation 2 for u");
    assert_eq!(format!("{runtime:?}"), r#"Runtime { peers: ["a", "clerk"], .. }"#);
    two.stop(None);
}

#[tokio::test]
async fn an_actor_that_joined_calls_in_its_own_name_and_no_other_does() {
    let runtime = empty();
    let (clerk, _) = Clerk::spawn(None, Clerk, 1).await.unwrap();
    let call = async || {
        let (sender, answer) = oneshot::channel();
        clerk.cast(ClerkMessage::Call(runtime.clone(), sender)).unwrap();
        answer.await.unwrap()
    };
    assert_eq!(call().await, Err(CallError::failed("it is no peer")));
    runtime.join_actor("clerk", "", clerk.clone()).unwrap();
    let mut events = runtime.events(100);
    assert_eq!(call().await.unwrap(), "heard hello");
    let agentouto::EventKind::Forward { forward } = events.try_next().unwrap().kind else { panic!("no Forward") };
    assert_eq!((&*forward.sender, &**forward.run.user()), ("clerk", "clerk"));

    let me = runtime.actor("clerk", &clerk).unwrap();
    let report = me.forward("a", "one").await.unwrap();
    assert_eq!(path(&report.log), ["clerk > a: one", "clerk < a: heard one"]);
    let taken = || CallError::NameTaken { name: "clerk".into() };
    assert_eq!(runtime.user("clerk").forward("a", "?").await.unwrap_err().error, taken());
    let (other, _) = Clerk::spawn(None, Clerk, 2).await.unwrap();
    assert!(runtime.actor("clerk", &other).is_none());
    runtime.replace_actor("clerk", other.clone());
    assert_eq!(me.forward("a", "two").await.unwrap_err().error, taken(), "it is the clerk no more");
    [clerk, other].iter().for_each(|actor| actor.stop(None));
}

#[tokio::test]
async fn an_actor_sees_what_was_lent() {
    let runtime = empty();
    let (clerk, _) = Clerk::spawn(None, Clerk, 7).await.unwrap();
    runtime.join_actor("clerk", "", clerk.clone()).unwrap();
    let lent = Arc::new(());
    runtime.user("web").forward("clerk", "?").with(Arc::clone(&lent)).await.unwrap();
    assert_eq!(Arc::strong_count(&lent), 1, "what was lent goes back");
    clerk.stop(None);
}
