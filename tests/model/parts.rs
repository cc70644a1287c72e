//! The parts of the model that can be left out: what programs are made of, and some of the checks.

/// What programs are made of, by name. `AGENTOUTO_ONLY=actors,cancel` draws programs of these alone, beside agents that
/// call each other; `AGENTOUTO_SKIP=actors` leaves some out.
pub(crate) const INGREDIENTS: &[(&str, &str)] = &[
    ("actors", "ractor actors as peers: at once, later, never, dead, calling back"),
    ("always", "hand-written tools with `Blocking::Always` that await calls of agents"),
    ("blocking", "`tool::blocking` functions, some of which block until they are released"),
    ("cancel", "calls that are cancelled, and then awaited"),
    ("context", "hand-written tools that call agents through their `ToolContext`"),
    ("drops", "futures that hold a value whose drop panics"),
    ("dropped", "calls that are polled a few times and dropped"),
    ("held", "calls made by `User::caller` that are kept without a poll, or after one"),
    ("kept", "tools that keep an unpolled call, a call after one poll, or a `Caller`, beyond their end"),
    ("left", "tools that leave spawned tasks behind"),
    ("lost", "calls on a tokio runtime that is dropped under them"),
    ("panics", "panics with a text, in models, tools, users and actors"),
    ("parks", "models, tools and users that never answer"),
    ("payloads", "panics with values that are not text, or whose drop panics"),
    ("users", "users that agents call"),
    ("pool", "tokio runtimes with a blocking pool of one or two threads"),
    ("ready", "tools whose awaits are always ready, some within a `tokio::time::timeout`"),
    ("runtimes", "blocking functions with a tokio runtime of their own, or `blocking_recv`"),
    ("second", "calls made from a second tokio runtime"),
    ("shutdown", "shutdowns before or while calls run, out of a tool, or dropped and repeated"),
    ("slow", "small streams of events that are read late"),
    ("tools", "async functions as tools"),
    ("undriven", "calls on a tokio runtime that is driven for a moment and then left alone"),
    ("versions", "an agent that leaves and joins with new instructions while it is called; tools that come and go"),
];

/// What programs are made of only if `AGENTOUTO_ALSO` names it.
pub(crate) const EXTRA_INGREDIENTS: &[(&str, &str)] = &[(
    "threads",
    "one or two threads for tools that block, where none of these waits for its release; tools with `Blocking::Always` that \
     block on calls of agents",
)];

/// The checks that can be skipped by name, with `AGENTOUTO_SKIP`.
pub(crate) const CHECKS: &[(&str, &str)] = &[
    ("again", "a call that is polled again gives the same outcome"),
    ("late_events", "no event of a call after its Return"),
    ("late_forwards", "no Forward of a call after the Return of its parent"),
    ("late_streams", "a stream that is opened after the shutdown ends"),
    ("logs", "the logs and the stream of all events hold the same calls"),
    ("requests", "every request to a model has ended before the Return of its call"),
    ("results", "what calls and tools give is what the program says"),
    ("returns", "every Forward has a Return when its log is handed out, or its stream ends"),
];

/// Which parts are wanted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    only: Option<Vec<String>>,
    skipped: Vec<String>,
    also: Vec<String>,
}

impl Parts {
    /// As `AGENTOUTO_ONLY`, `AGENTOUTO_SKIP` and `AGENTOUTO_ALSO` say.
    pub(crate) fn from_env() -> Self {
        Self {
            only: list("AGENTOUTO_ONLY", &[INGREDIENTS]),
            skipped: list("AGENTOUTO_SKIP", &[INGREDIENTS, CHECKS]).unwrap_or_default(),
            also: list("AGENTOUTO_ALSO", &[EXTRA_INGREDIENTS]).unwrap_or_default(),
        }
    }

    /// Whether programs may hold this ingredient. The empty name stands for what every program may hold.
    pub(crate) fn draws(&self, ingredient: &str) -> bool {
        if EXTRA_INGREDIENTS.iter().any(|(extra, _)| *extra == ingredient) {
            return self.also.iter().any(|part| part == ingredient);
        }
        let is_known = INGREDIENTS.iter().any(|(known, _)| *known == ingredient);
        assert!(is_known || ingredient.is_empty(), "unknown ingredient `{ingredient}`");
        let is_wanted = self.only.is_none() || self.insists_on(ingredient);
        ingredient.is_empty() || (is_wanted && self.checks(ingredient))
    }

    /// Whether `AGENTOUTO_ONLY` names this ingredient.
    pub(crate) fn insists_on(&self, ingredient: &str) -> bool {
        self.only.as_ref().is_some_and(|only| only.iter().any(|part| part == ingredient))
    }

    /// Whether this check is made.
    pub(crate) fn checks(&self, part: &str) -> bool {
        !self.skipped.iter().any(|skipped| skipped == part)
    }
}

/// The parts that a variable names, which must be known.
fn list(variable: &str, known: &[&[(&str, &str)]]) -> Option<Vec<String>> {
    let text = std::env::var(variable).ok().filter(|text| !text.is_empty())?;
    let names: Vec<String> = text.split(',').map(str::to_owned).collect();
    for name in &names {
        let is_known = known.iter().copied().flatten().any(|(part, _)| name == part);
        assert!(is_known, "{variable}: unknown part `{name}`; known are {known:#?}");
    }
    Some(names)
}
