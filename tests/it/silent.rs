//! An actor that keeps what it is asked until it is told to answer.

use agentouto::{CallError, Incoming};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::mpsc;

/// The actor, and what it says: `asked` for each Forward, `answered` for each answer.
pub(crate) async fn silent() -> (ActorRef<Letter>, mpsc::UnboundedReceiver<&'static str>) {
    let (sender, said) = mpsc::unbounded_channel();
    (Silent::spawn(None, Silent, sender).await.unwrap().0, said)
}

struct Silent;

pub(crate) enum Letter {
    Ask(Incoming),
    /// Answer the last question, once its caller has cancelled the call.
    Answer,
}

impl From<Incoming> for Letter {
    fn from(incoming: Incoming) -> Self {
        Self::Ask(incoming)
    }
}

impl Actor for Silent {
    type Msg = Letter;
    type State = (mpsc::UnboundedSender<&'static str>, Vec<Incoming>);
    type Arguments = mpsc::UnboundedSender<&'static str>;

    async fn pre_start(&self, _: ActorRef<Letter>, sender: Self::Arguments) -> Result<Self::State, ActorProcessingErr> {
        Ok((sender, Vec::new()))
    }

    async fn handle(
        &self,
        _: ActorRef<Letter>,
        letter: Letter,
        (sender, kept): &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match letter {
            Letter::Ask(incoming) => {
                kept.push(incoming);
                sender.send("asked")?;
            }
            Letter::Answer => {
                let incoming = kept.pop().expect("it was asked");
                incoming.reply.cancelled().await;
                incoming.reply.send(Ok::<_, CallError>("too late"));
                sender.send("answered")?;
            }
        }
        Ok(())
    }
}
