//! An actor that keeps what it is asked until it is told to answer.

use agentouto::{CallError, Incoming};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::mpsc;

/// The actor, and what it says: `asked` for each Forward, `answered` for each answer.
pub(crate) async fn silent() -> (ActorRef<SilentMessage>, mpsc::UnboundedReceiver<&'static str>) {
    let (sender, said) = mpsc::unbounded_channel();
    (Silent::spawn(None, Silent, sender).await.unwrap().0, said)
}

struct Silent;

pub(crate) enum SilentMessage {
    Ask(Incoming),
    /// Answer the last question, once its caller has cancelled the call.
    Answer,
}

impl From<Incoming> for SilentMessage {
    fn from(incoming: Incoming) -> Self {
        Self::Ask(incoming)
    }
}

impl Actor for Silent {
    type Msg = SilentMessage;
    type State = (mpsc::UnboundedSender<&'static str>, Vec<Incoming>);
    type Arguments = mpsc::UnboundedSender<&'static str>;

    async fn pre_start(
        &self,
        _: ActorRef<SilentMessage>,
        sender: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok((sender, Vec::new()))
    }

    async fn handle(
        &self,
        _: ActorRef<SilentMessage>,
        letter: SilentMessage,
        (sender, kept): &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match letter {
            SilentMessage::Ask(incoming) => {
                kept.push(incoming);
                sender.send("asked")?;
            }
            SilentMessage::Answer => {
                let incoming = kept.pop().expect("it was asked");
                incoming.reply.cancelled().await;
                incoming.reply.send(Ok::<_, CallError>("too late"));
                sender.send("answered")?;
            }
        }
        Ok(())
    }
}
