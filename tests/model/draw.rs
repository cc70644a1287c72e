//! Draws a program from a seed.

use crate::parts::Parts;
use crate::program::{
    Behaviour, Holding, How, Mode, Moment, Node, Payload, Place, Program, Replacement, Root, Shutdown, Who,
};
use crate::rng::Rng;

/// The most nodes of one program.
const MAX_NODES: usize = 32;
const MAX_DEPTH: usize = 7;

/// Choices by weight, each with the ingredient that it belongs to.
type Choices<T> = [(usize, T, &'static str)];

const CALLEES: &Choices<Who> = &[
    (40, Who::Agent(0), ""),
    (20, Who::Agent(1), ""),
    (8, Who::User(0), "users"),
    (4, Who::User(1), "users"),
    (10, Who::SpawningActor, "actors"),
    (5, Who::SerialActor, "actors"),
    (4, Who::CrashingActor, "actors"),
    (5, Who::Versioned, "versions"),
    (2, Who::UnknownPeer, ""),
];

const TOOLS: &Choices<Who> = &[
    (20, Who::Function, "tools"),
    (25, Who::Context, "context"),
    (12, Who::Blocking, "blocking"),
    (12, Who::Always, "always"),
    (3, Who::ReplacedTool, "versions"),
    (1, Who::UnknownTool, ""),
];

const AGENT_BEHAVIOURS: &Choices<Behaviour> = &[
    (50, Behaviour::Return, ""),
    (15, Behaviour::Finish, ""),
    (8, Behaviour::Yield(3), ""),
    (4, Behaviour::Fail, ""),
    (4, Behaviour::Panic(Payload::Text), "panics"),
    (2, Behaviour::Panic(Payload::Number), "payloads"),
    (2, Behaviour::Panic(Payload::PanicOnDrop), "payloads"),
    (5, Behaviour::Park(Holding::Nothing), "parks"),
    (2, Behaviour::Park(Holding::PanicOnDrop), "drops"),
    (1, Behaviour::ReturnHolding, "drops"),
];

const ACTOR_BEHAVIOURS: &Choices<Behaviour> = &[
    (20, Behaviour::Return, ""),
    (10, Behaviour::Yield(4), ""),
    (4, Behaviour::Fail, ""),
    (6, Behaviour::Park(Holding::Nothing), ""),
    (5, Behaviour::AwaitCancellation, ""),
    (5, Behaviour::Drop, ""),
    (6, Behaviour::CallAfterReply, ""),
];

const MORTAL_BEHAVIOURS: &Choices<Behaviour> = &[
    (10, Behaviour::Return, ""),
    (5, Behaviour::Drop, ""),
    (5, Behaviour::Panic(Payload::Text), ""),
    (8, Behaviour::Kill, ""),
];

const FUNCTION_BEHAVIOURS: &Choices<Behaviour> = &[
    (20, Behaviour::Return, ""),
    (4, Behaviour::Fail, ""),
    (6, Behaviour::Yield(5), ""),
    (4, Behaviour::Panic(Payload::Text), "panics"),
    (2, Behaviour::Panic(Payload::Number), "payloads"),
    (2, Behaviour::Panic(Payload::PanicOnDrop), "payloads"),
    (4, Behaviour::Park(Holding::Nothing), "parks"),
    (4, Behaviour::Park(Holding::PanicOnDrop), "drops"),
    (2, Behaviour::ReturnHolding, "drops"),
    (5, Behaviour::Ready, "ready"),
    (4, Behaviour::TimedOut, "ready"),
];

const CONTEXT_BEHAVIOURS: &Choices<Behaviour> =
    &[(20, Behaviour::Call(How::InTurn), ""), (5, Behaviour::Progress, ""), (1, Behaviour::ShutDown, "shutdown")];

const BLOCKING_BEHAVIOURS: &Choices<Behaviour> = &[
    (15, Behaviour::Return, ""),
    (3, Behaviour::Fail, ""),
    (3, Behaviour::Panic(Payload::Text), "panics"),
    (1, Behaviour::Panic(Payload::Number), "payloads"),
    (1, Behaviour::Panic(Payload::PanicOnDrop), "payloads"),
    (10, Behaviour::Blocked, ""),
    (5, Behaviour::BlockedOnChannel, "runtimes"),
    (5, Behaviour::OwnRuntime, "runtimes"),
];

const ALWAYS_BEHAVIOURS: &Choices<Behaviour> = &[
    (20, Behaviour::Call(How::InTurn), ""),
    (3, Behaviour::Return, ""),
    (2, Behaviour::Panic(Payload::Text), "panics"),
];

const HOWS: &Choices<How> = &[
    (20, How::InTurn, ""),
    (15, How::AtOnce, ""),
    (8, How::Spawned, ""),
    (10, How::Detached, "left"),
    (5, How::Unpolled, "kept"),
    (6, How::PolledOnce, "kept"),
    (4, How::KeepsCaller, "kept"),
    (5, How::DroppedAfterOnePoll, "dropped"),
    (5, How::WithTimeout, "dropped"),
];

const HOWS_OF_ALWAYS: &Choices<How> = &[
    (20, How::InTurn, ""),
    (10, How::BlockOn, "threads"),
    (15, How::AtOnce, ""),
    (2, How::Unpolled, "kept"),
    (2, How::PolledOnce, "kept"),
    (2, How::KeepsCaller, "kept"),
];

const SHUTDOWNS: &Choices<()> = &[(6, (), ""), (3, (), "shutdown"), (1, (), "shutdown"), (1, (), "shutdown")];

/// The program of a seed.
pub(crate) fn program(seed: u64, parts: &Parts) -> Program {
    let mut draw = Draw { rng: Rng::new(seed), parts, nodes: Vec::new() };
    let count = 1 + draw.rng.below(4);
    // Rare, because each takes a second.
    let one_in = if parts.insists_on("undriven") { 2 } else { 500 };
    let has_undriven = parts.draws("undriven") && draw.rng.below(one_in) == 0;
    let mut roots: Vec<_> = (0..count).map(|root| draw.root(root)).collect();
    if has_undriven {
        roots[0].place = Place::Undriven;
        roots[0].mode = Mode::Await;
    }
    let versions = parts.draws("versions") && draw.rng.chance(25);
    let (shutdown, stop) = (draw.shutdown(), draw.moment());
    let release = draw.rng.chance(50).then(|| draw.moment());
    let spare = draw.reserve(Spot { root: count, depth: 0, fragile: false }, Who::Versioned);
    let replacements = if versions { 1 + draw.rng.below(4) } else { 0 };
    // A function that is released late would hold up every other.
    let waits = |node: &Node| matches!(node.behaviour, Behaviour::Blocked | Behaviour::BlockedOnChannel);
    let has_few = parts.draws("threads") && draw.rng.chance(40) && !draw.nodes.iter().any(waits);
    Program {
        seed,
        spare,
        shutdown,
        stop,
        release,
        replacements: (0..replacements).map(|_| draw.replacement()).collect(),
        tool_changes: if versions { draw.rng.below(4) } else { 0 },
        pool: (parts.draws("pool") && draw.rng.chance(40)).then(|| 1 + draw.rng.below(2)),
        threads: has_few.then(|| 1 + draw.rng.below(2)),
        streams: match parts.draws("slow") {
            true => (0..draw.rng.below(3)).map(|_| 1 + draw.rng.below(20)).collect(),
            false => Vec::new(),
        },
        reads_at_once: draw.rng.chance(50),
        nodes: draw.nodes,
        roots,
    }
}

struct Draw<'a> {
    rng: Rng,
    parts: &'a Parts,
    nodes: Vec<Node>,
}

/// Where in a tree a node is.
#[derive(Clone, Copy)]
struct Spot {
    root: usize,
    depth: usize,
    fragile: bool,
}

impl Spot {
    fn below(self, fragile: bool) -> Self {
        Self { depth: self.depth + 1, fragile: self.fragile || fragile, ..self }
    }
}

impl Draw<'_> {
    fn of<T: Copy>(&mut self, choices: &Choices<T>) -> Option<T> {
        let wanted = choices.iter().filter(|(.., part)| self.parts.draws(part));
        let wanted: Vec<_> = wanted.map(|(weight, value, _)| (*weight, *value)).collect();
        (!wanted.is_empty()).then(|| self.rng.weighted(&wanted))
    }

    fn moment(&mut self) -> Moment {
        match self.rng.chance(50) {
            true => Moment::Yields(self.rng.below(30)),
            false => Moment::Begun(self.rng.below(15)),
        }
    }

    fn shutdown(&mut self) -> Shutdown {
        let kinds: Vec<_> =
            SHUTDOWNS.iter().enumerate().map(|(kind, (weight, (), part))| (*weight, kind, *part)).collect();
        match self.of(&kinds) {
            Some(1) => Shutdown::At(self.moment()),
            Some(2) => Shutdown::DroppedAt(self.moment()),
            Some(3) => Shutdown::Before,
            _ => Shutdown::After,
        }
    }

    fn replacement(&mut self) -> Replacement {
        match self.rng.chance(40) {
            true => Replacement::InWaker,
            false => Replacement::After(self.rng.below(6)),
        }
    }

    fn root(&mut self, root: usize) -> Root {
        let spot = Spot { root, depth: 0, fragile: false };
        let is_chain = self.parts.draws("always") && self.rng.chance(8);
        let node = if is_chain { self.chain(spot, 3) } else { self.callee(spot) };
        let mode = self.mode();
        // A call that is kept would lose its callee with the second tokio runtime.
        let is_kept = matches!(mode, Mode::CallerPolledOnce | Mode::CallerUnpolled);
        let places: &Choices<Place> = &[
            (88, Place::Here, ""),
            (5, Place::SecondCurrentThread, "second"),
            (3, Place::SecondMultiThread, "second"),
            (2, Place::LostCurrentThread, "lost"),
            (2, Place::LostMultiThread, "lost"),
        ];
        let place = if is_kept { None } else { self.of(places) };
        let place = place.unwrap_or(Place::Here);
        Root { node, mode, place, delay: self.rng.below(4) }
    }

    fn mode(&mut self) -> Mode {
        let moment = self.moment();
        let events = self.rng.below(12);
        let modes: &Choices<Mode> = &[
            (15, Mode::Run, ""),
            (15, Mode::Await, ""),
            (10, Mode::Events, ""),
            (10, Mode::Caller, ""),
            (18, Mode::Cancel(moment), "cancel"),
            (2, Mode::CancelUnsent, "cancel"),
            (5, Mode::CancelAfterEvents(events), "cancel"),
            (8, Mode::Drop(moment), "dropped"),
            (8, Mode::CallerDrop(moment), "dropped"),
            (4, Mode::CallerUnpolled, "held"),
            (5, Mode::CallerPolledOnce, "held"),
        ];
        self.of(modes).unwrap_or(Mode::Run)
    }

    /// Takes the next place, to be filled when the children are known.
    fn reserve(&mut self, spot: Spot, who: Who) -> usize {
        let Spot { root, fragile, .. } = spot;
        self.nodes.push(Node { root, who, behaviour: Behaviour::Return, turns: Vec::new(), parks: false, fragile });
        self.nodes.len() - 1
    }

    fn fill(&mut self, place: usize, behaviour: Behaviour, turns: Vec<Vec<usize>>) -> usize {
        let parks_itself = matches!(
            behaviour,
            Behaviour::Park(_)
                | Behaviour::Blocked
                | Behaviour::BlockedOnChannel
                | Behaviour::AwaitCancellation
                | Behaviour::ShutDown
        );
        let waits_in_line = self.nodes[place].who == Who::SerialActor;
        let parks_below = turns.iter().flatten().any(|child| self.nodes[*child].parks);
        let node = &mut self.nodes[place];
        (node.behaviour, node.turns, node.parks) = (behaviour, turns, parks_itself || waits_in_line || parks_below);
        place
    }

    /// An agent, whose blocking tool calls an agent, whose blocking tool calls an agent, and so on.
    fn chain(&mut self, spot: Spot, levels: usize) -> usize {
        let agent = self.reserve(spot, Who::Agent(0));
        let mut turns = Vec::new();
        if levels > 0 {
            let tool = self.reserve(spot.below(false), Who::Always);
            let below = self.chain(spot.below(false).below(false), levels - 1);
            let blocks = self.parts.draws("threads") && self.rng.chance(50);
            let how = if blocks { How::BlockOn } else { How::InTurn };
            turns.push(vec![self.fill(tool, Behaviour::Call(how), vec![vec![below]])]);
        }
        self.fill(agent, Behaviour::Return, turns)
    }

    fn callee(&mut self, spot: Spot) -> usize {
        let who = self.of(CALLEES).unwrap_or(Who::Agent(0));
        let place = self.reserve(spot, who);
        match who {
            Who::Agent(_) => {
                let turns = if self.is_leaf(spot) { 0 } else { self.rng.weighted(&[(3, 0), (6, 1), (3, 2)]) };
                let turns = (0..turns).map(|_| self.turn(spot.below(false))).collect();
                let behaviour = self.of(AGENT_BEHAVIOURS).unwrap_or(Behaviour::Return);
                self.fill(place, behaviour, turns)
            }
            Who::User(_) => {
                let behaviour = self.of(AGENT_BEHAVIOURS).unwrap_or(Behaviour::Return);
                self.fill(place, behaviour, Vec::new())
            }
            Who::SpawningActor | Who::SerialActor | Who::CrashingActor => self.actor(place, spot, who),
            _ => self.fill(place, Behaviour::Return, Vec::new()),
        }
    }

    fn actor(&mut self, place: usize, spot: Spot, who: Who) -> usize {
        let calls = who != Who::CrashingActor && !self.is_leaf(spot) && self.rng.chance(50);
        let behaviour = match who {
            _ if calls => self.of(HOWS).map(Behaviour::Call),
            Who::CrashingActor => self.of(MORTAL_BEHAVIOURS),
            _ => self.of(ACTOR_BEHAVIOURS),
        };
        let behaviour = behaviour.unwrap_or(Behaviour::Return);
        let turns = match behaviour {
            Behaviour::Call(how) => vec![self.calls(spot.below(is_fragile(how)))],
            Behaviour::Kill | Behaviour::CallAfterReply => {
                vec![vec![self.callee(Spot { depth: MAX_DEPTH, ..spot.below(true) })]]
            }
            _ => Vec::new(),
        };
        self.fill(place, behaviour, turns)
    }

    fn is_leaf(&self, spot: Spot) -> bool {
        spot.depth >= MAX_DEPTH || self.nodes.len() >= MAX_NODES
    }

    fn turn(&mut self, spot: Spot) -> Vec<usize> {
        let width = self.rng.weighted(&[(5, 1), (4, 2), (2, 3), (1, 5)]);
        (0..width).map(|_| if self.rng.chance(45) { self.callee(spot) } else { self.tool(spot) }).collect()
    }

    fn calls(&mut self, spot: Spot) -> Vec<usize> {
        let width = self.rng.weighted(&[(5, 1), (4, 2), (1, 3)]);
        (0..width).map(|_| self.callee(spot)).collect()
    }

    fn tool(&mut self, spot: Spot) -> usize {
        let Some(who) = self.of(TOOLS) else { return self.callee(spot) };
        let place = self.reserve(spot, who);
        let behaviour = match who {
            Who::Function => self.of(FUNCTION_BEHAVIOURS),
            Who::Context if self.rng.chance(15) => self.of(FUNCTION_BEHAVIOURS),
            Who::Context => self.of(CONTEXT_BEHAVIOURS),
            Who::Blocking => self.of(BLOCKING_BEHAVIOURS),
            Who::Always => self.of(ALWAYS_BEHAVIOURS),
            _ => None,
        };
        let behaviour = match (behaviour, who) {
            (Some(Behaviour::Call(_)), Who::Always) => Behaviour::Call(self.of(HOWS_OF_ALWAYS).unwrap_or(How::InTurn)),
            (Some(Behaviour::Call(_)), _) => Behaviour::Call(self.of(HOWS).unwrap_or(How::InTurn)),
            (behaviour, _) => behaviour.unwrap_or(Behaviour::Return),
        };
        let turns = match behaviour {
            Behaviour::Call(how) => vec![self.calls(spot.below(is_fragile(how)))],
            _ => Vec::new(),
        };
        self.fill(place, behaviour, turns)
    }
}

/// Whether calls made so may be cancelled without the rest of the tree.
fn is_fragile(how: How) -> bool {
    !matches!(how, How::InTurn | How::BlockOn | How::AtOnce)
}
