//! A program: a team, trees of calls, and what befalls them from outside. Drawn from a seed, and nothing else.

use std::fmt;

/// A value of this type says all that a run of it does, except the order in which threads get their turn.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) seed: u64,
    /// The calls and tool calls of all trees. The children of a node come after it.
    pub(crate) nodes: Vec<Node>,
    pub(crate) roots: Vec<Root>,
    /// A call of the agent of many versions, in none of the trees; the last node.
    pub(crate) spare: usize,
    pub(crate) shutdown: Shutdown,
    /// When loops of ready awaits are told to stop.
    pub(crate) stop: Moment,
    /// When blocked functions are released; `None` for not before the shutdown.
    pub(crate) release: Option<Moment>,
    /// How the agent of many versions is replaced, one after the other.
    pub(crate) replacements: Vec<Replacement>,
    /// How often a tool leaves and joins.
    pub(crate) tool_changes: usize,
    /// The size of tokio's blocking pool, if not the default.
    pub(crate) pool: Option<usize>,
    /// The limit of threads for tools that block, if not the default.
    pub(crate) threads: Option<usize>,
    /// Further streams of events, by capacity.
    pub(crate) streams: Vec<usize>,
    /// Whether the main stream is read while the program runs, or at its end.
    pub(crate) reads_at_once: bool,
}

/// One call of a peer, or one use of a tool.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) root: usize,
    pub(crate) who: Who,
    pub(crate) behaviour: Behaviour,
    /// The calls and tool calls of each turn. Tools and actors have one turn at most.
    pub(crate) turns: Vec<Vec<usize>>,
    /// Whether it, or what is below it, may wait for a cancellation or a release.
    pub(crate) parks: bool,
    /// Whether something above it, other than its root, may cancel it.
    pub(crate) fragile: bool,
}

/// What serves a call, or which kind of tool is used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Who {
    Agent(u8),
    /// The agent that leaves and joins with new instructions.
    Versioned,
    User(u8),
    /// An actor whose handler never waits.
    SpawningActor,
    /// An actor that awaits its calls in its handler.
    SerialActor,
    /// An actor that may panic or kill itself.
    CrashingActor,
    /// A name that no peer has.
    UnknownPeer,
    Function,
    Context,
    Blocking,
    Always,
    /// The tool that leaves and joins.
    ReplacedTool,
    /// A name that no tool has.
    UnknownTool,
}

impl Who {
    pub(crate) fn is_tool(self) -> bool {
        matches!(
            self,
            Self::Function | Self::Context | Self::Blocking | Self::Always | Self::ReplacedTool | Self::UnknownTool
        )
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Agent(0) => "a0",
            Self::Agent(_) => "a1",
            Self::Versioned => "versioned",
            Self::User(0) => "p0",
            Self::User(_) => "p1",
            Self::SpawningActor => "spawning",
            Self::SerialActor => "serial",
            Self::CrashingActor => "crashing",
            Self::UnknownPeer => "unknown",
            Self::Function => "function",
            Self::Context => "context",
            Self::Blocking => "blocking",
            Self::Always => "always",
            Self::ReplacedTool => "replaced_tool",
            Self::UnknownTool => "unknown_tool",
        }
    }
}

/// What a node does. An agent does it after its turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Behaviour {
    Return,
    /// Returns by the tool `finish`.
    Finish,
    Fail,
    Panic(Payload),
    /// Yields so often, and then returns.
    Yield(usize),
    /// Never returns; held to it, a value whose drop panics.
    Park(Holding),
    /// Returns with a value in hand whose drop panics.
    ReturnHolding,
    /// Awaits what is ready, until told to stop.
    Ready,
    /// Awaits what is ready, within a timeout.
    TimedOut,
    /// Shows progress.
    Progress,
    /// Calls its children.
    Call(How),
    /// Shuts the runtime down.
    ShutDown,
    /// Blocks until released.
    Blocked,
    /// Waits for the release with `blocking_recv`.
    BlockedOnChannel,
    /// Runs a tokio runtime of its own.
    OwnRuntime,
    /// Waits until the caller cancels.
    AwaitCancellation,
    /// Drops the reply port.
    Drop,
    /// Kills itself while a call is under way.
    Kill,
    /// Answers, and calls an agent after that.
    CallAfterReply,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Holding {
    Nothing,
    PanicOnDrop,
}

/// What a panic carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Payload {
    Text,
    Number,
    /// A value whose drop panics.
    PanicOnDrop,
}

/// How a tool or an actor makes its calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum How {
    InTurn,
    /// In turn, with the thread blocked meanwhile.
    BlockOn,
    AtOnce,
    /// In tasks that are awaited.
    Spawned,
    /// In tasks that are not.
    Detached,
    /// Makes the futures, polls none, and keeps them.
    Unpolled,
    /// Polls each once, and keeps it.
    PolledOnce,
    /// Polls each once, and drops it.
    DroppedAfterOnePoll,
    /// Within a timeout.
    WithTimeout,
    /// Makes none, and keeps the `Caller`, or `ToolContext`.
    KeepsCaller,
}

/// One call from outside.
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) node: usize,
    pub(crate) mode: Mode,
    pub(crate) place: Place,
    /// How many times the task yields before it calls.
    pub(crate) delay: usize,
}

/// What becomes of a call from outside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mode {
    /// `Runtime::run`.
    Run,
    /// `User::forward`, awaited.
    Await,
    /// Read by `next_event` to the end, then awaited.
    Events,
    /// Cancelled at that moment, then awaited.
    Cancel(Moment),
    /// Cancelled before it was polled, then awaited.
    CancelUnsent,
    /// Read for so many events, cancelled, read to the end, then awaited.
    CancelAfterEvents(usize),
    /// Polled until that moment, then dropped.
    Drop(Moment),
    /// `Caller::call_agent`, awaited.
    Caller,
    /// The same, polled until that moment, then dropped.
    CallerDrop(Moment),
    /// The same, kept without a poll until after the shutdown.
    CallerUnpolled,
    /// The same, kept after one poll until after the shutdown.
    CallerPolledOnce,
}

impl Mode {
    /// Whether the call's end says that everything below it has ended.
    pub(crate) fn is_held_to_its_end(self) -> bool {
        use Mode::{Await, Cancel, CancelAfterEvents, CancelUnsent, Events, Run};
        matches!(self, Run | Await | Events | Cancel(_) | CancelUnsent | CancelAfterEvents(_))
    }

    /// Whether the call is awaited and nothing cancels it.
    pub(crate) fn is_awaited(self) -> bool {
        matches!(self, Self::Run | Self::Await | Self::Events | Self::Caller)
    }
}

/// Where a call from outside is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Place {
    Here,
    /// On a current-thread runtime of its own.
    SecondCurrentThread,
    /// On a multi-thread runtime of its own.
    SecondMultiThread,
    /// On a current-thread runtime that is dropped after a moment.
    LostCurrentThread,
    /// On a multi-thread runtime that is dropped after a moment.
    LostMultiThread,
    /// On a current-thread runtime that is left alone until after the shutdown.
    Undriven,
}

impl Place {
    /// Whether the tokio runtime is dropped under the call.
    pub(crate) fn is_lost(self) -> bool {
        matches!(self, Self::LostCurrentThread | Self::LostMultiThread)
    }
}

/// A moment in a run, never later than a few milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Moment {
    /// After so many yields.
    Yields(usize),
    /// When so many things have begun.
    Begun(usize),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shutdown {
    /// When all calls have ended that end by themselves.
    After,
    Before,
    At(Moment),
    /// Polled once and dropped, at that moment; then again.
    DroppedAt(Moment),
}

/// How an agent is replaced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Replacement {
    /// By another task, after so many yields.
    After(usize),
    /// By a waker, in the middle of a call's beginning.
    InWaker,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, shutdown, stop, release, replacements, tool_changes, pool, threads, streams, .. } = self;
        writeln!(
            f,
            "program {seed}: shutdown {shutdown:?}, stop {stop:?}, release {release:?}, pool {pool:?}, threads {threads:?}"
        )?;
        writeln!(f, "  replacements {replacements:?}, tool changes {tool_changes}, small streams {streams:?}")?;
        for (nth, Root { node, mode, place, delay }) in self.roots.iter().enumerate() {
            writeln!(f, "  root {nth}: {mode:?} {place:?}, after {delay} yields")?;
            let mut open = vec![(*node, 0, 4)];
            while let Some((node, turn, depth)) = open.pop() {
                let Node { who, behaviour, turns, parks, fragile, .. } = &self.nodes[node];
                let marks = [if *parks { " parks" } else { "" }, if *fragile { " fragile" } else { "" }].concat();
                writeln!(f, "{:depth$}turn {turn}: n{node} {} {behaviour:?}{marks}", "", who.name())?;
                for (turn, children) in turns.iter().enumerate().rev() {
                    open.extend(children.iter().rev().map(|child| (*child, turn, depth + 2)));
                }
            }
        }
        Ok(())
    }
}
