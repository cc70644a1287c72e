//! The settings that families of models accept, where a vendor's models differ.
//!
//! One table per vendor, as of 2026-11-22. An agent's [`extra`](crate::Agent::extra) overrides it. A model that no
//! table knows gets the settings that most servers accept. Nothing here sends a request.

use crate::agent::Effort;

/// A version of two numbers, such as 4 and 7.
type Version = (u32, u32);

/// The thinking settings of Claude models, from the version on with which a row begins.
///
/// [Thinking](https://platform.claude.com/docs/en/build-with-claude/thinking-troubleshooting), [sampling
/// parameters](https://platform.claude.com/docs/en/models/sonnet-5-5/migration-guide),
/// [limits](https://platform.claude.com/docs/en/about-claude/models/overview).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claude {
    since: Version,
    pub(crate) thinking: ClaudeThinking,
    /// `true` if a temperature is accepted.
    pub(crate) has_temperature: bool,
    /// The limit of output tokens if the agent has none. The API has no default; the models can write this much.
    pub(crate) max_tokens: u32,
}

/// The ways to request thinking from a Claude model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaudeThinking {
    /// Thinks with a budget of tokens, and only on request.
    Budget,
    /// Thinks with an effort or a budget, and only on request.
    EffortOrBudget,
    /// Thinks with an effort, and only on request.
    Effort,
    /// Thinks with an effort, unless it is turned off.
    EffortByDefault,
    /// Always thinks, with an effort.
    Always,
}

const CLAUDE: [Claude; 7] = {
    use ClaudeThinking::*;
    const fn row(since: Version, thinking: ClaudeThinking, has_temperature: bool, max_tokens: u32) -> Claude {
        Claude { since, thinking, has_temperature, max_tokens }
    }
    [
        row((5, 5), Always, false, 32_000),
        row((5, 0), EffortByDefault, false, 32_000),
        row((4, 7), Effort, false, 32_000),
        row((4, 6), EffortOrBudget, true, 32_000),
        row((3, 7), Budget, true, 32_000),
        row((3, 5), Budget, true, 8_192),
        row((0, 0), Budget, true, 4_096),
    ]
};

/// The settings of other models behind the Messages format.
const NO_CLAUDE: Claude =
    Claude { since: (0, 0), thinking: ClaudeThinking::Budget, has_temperature: true, max_tokens: 8_192 };

/// The settings that a model behind the Messages format accepts. Its name may have a prefix, as on Bedrock, or a
/// suffix.
pub(crate) fn claude(model: &str) -> Claude {
    let Some((_, name)) = model.rsplit_once("claude-") else { return NO_CLAUDE };
    let is_of = |families: &[&str]| families.iter().any(|family| name.starts_with(family));
    // The former always think; for the latter, a name without a version means the latest version.
    let version = match version(name) {
        _ if is_of(&["fable", "mythos"]) => None,
        None if !is_of(&["opus", "sonnet", "haiku"]) => return NO_CLAUDE,
        version => version,
    };
    *CLAUDE.iter().find(|row| version.is_none_or(|version| version >= row.since)).unwrap_or(&NO_CLAUDE)
}

/// The settings that OpenAI's reasoning models accept, from the version on with which a row begins.
///
/// [Reasoning](https://developers.openai.com/api/docs/guides/reasoning), [tools together with
/// it](https://github.com/openai/openai-openapi/issues/541), [reasoning by
/// default](https://github.com/BerriAI/litellm/pull/34569).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gpt {
    since: Version,
    /// The lowest of the [`EFFORTS`] that it accepts.
    least_effort: &'static str,
    /// The rule for tools together with reasoning in Chat Completions.
    pub(crate) chat_tools: ChatTools,
}

/// The way in which Chat Completions treats tools together with reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChatTools {
    /// Both are accepted.
    Accepted,
    /// Tools are refused if an effort is sent.
    WithoutEffort,
    /// Tools are refused unless the effort is sent as `none`.
    WithEffortNone,
}

const GPT: [Gpt; 4] = {
    use ChatTools::*;
    [
        Gpt { since: (5, 5), least_effort: "none", chat_tools: WithEffortNone },
        Gpt { since: (5, 4), least_effort: "none", chat_tools: WithoutEffort },
        Gpt { since: (5, 1), least_effort: "none", chat_tools: Accepted },
        Gpt { since: (5, 0), least_effort: "minimal", chat_tools: Accepted },
    ]
};

/// `o1`, `o3`, `o4-mini`, and models derived from them.
const O_SERIES: Gpt = Gpt { since: (0, 0), least_effort: "low", chat_tools: ChatTools::Accepted };

/// The efforts, from the lowest to the highest.
const EFFORTS: [&str; 5] = ["none", "minimal", "low", "medium", "high"];

/// The settings of one of OpenAI's reasoning models; `None` for all other models.
///
/// `None` also for OpenAI's models at other vendors, whose names have a prefix. None of the reasoning models accepts a
/// temperature.
pub(crate) fn gpt(model: &str) -> Option<Gpt> {
    let model = model.strip_prefix("ft:").unwrap_or(model);
    let (family, rest) = model.split_once('-').unwrap_or((model, ""));
    match family {
        "o1" | "o3" | "o4" | "codex" => return Some(O_SERIES),
        "gpt" if !rest.contains("chat") => {}
        _ => return None,
    }
    // Directly after `gpt-`, with a major version of one digit: `5.6`, but neither `4o` nor Azure's `35`.
    let (major, minor) = rest.split('-').next().map(|number| number.split_once('.').unwrap_or((number, "0")))?;
    let version = (number(major).filter(|_| major.len() == 1)?, number(minor)?);
    let row = GPT.into_iter().find(|row| version >= row.since)?;
    let least_effort = match rest {
        _ if rest.contains("-pro") && version < (5, 2) => "high",
        _ if rest.contains("-pro") => "medium",
        _ if rest.contains("codex") => "low",
        _ => row.least_effort,
    };
    Some(Gpt { least_effort, ..row })
}

/// The word for an effort, or for the lowest effort that the model accepts if that is higher.
pub(crate) fn effort(effort: Effort, gpt: Option<Gpt>) -> &'static str {
    let asked = match effort {
        Effort::None => "none",
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
    };
    let least = gpt.map_or(EFFORTS[0], |gpt| gpt.least_effort);
    EFFORTS.into_iter().rfind(|word| *word == asked || *word == least).unwrap_or(asked)
}

/// The way to tell a Gemini model how much to think.
///
/// [Thinking](https://ai.google.dev/gemini-api/docs/thinking),
/// [levels](https://docs.cloud.google.com/gemini-enterprise-agent-platform/models/guides/gemini-3-5-flash).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gemini {
    /// By a budget of tokens, with the smallest and the largest that it accepts; some models also accept 0 for no
    /// thinking.
    Budget { can_be_none: bool, least: u32, most: u32 },
    /// The model does not think.
    Never,
    /// By a level, with the lowest that it accepts.
    Level { least: &'static str, has_medium: bool },
}

/// The thinking settings that a Gemini model accepts.
pub(crate) fn gemini(model: &str) -> Gemini {
    let name = model.rsplit('/').next().unwrap_or(model);
    let version = name.strip_prefix("gemini-").and_then(version);
    let is_pro = name.contains("-pro");
    match version {
        Some(version) if version >= (3, 0) => {
            Gemini::Level { least: if is_pro { "low" } else { "minimal" }, has_medium: !is_pro || version > (3, 0) }
        }
        Some(version) if version < (2, 5) => Gemini::Never,
        _ if name.starts_with("gemma") || name.contains("-image") => Gemini::Never,
        _ if is_pro => Gemini::Budget { can_be_none: false, least: 128, most: 32_768 },
        _ if name.contains("-lite") => Gemini::Budget { can_be_none: true, least: 512, most: 24_576 },
        _ => Gemini::Budget { can_be_none: true, least: 1, most: 24_576 },
    }
}

/// The first version in a name: `sonnet-4-5-20250929`, `3-7-sonnet`, `5.6-terra`. Numbers of more than two digits are
/// dates and sizes.
fn version(name: &str) -> Option<Version> {
    let mut parts = name.split(['-', '.', '@', ':']).skip_while(|part| number(part).is_none());
    let major = number(parts.next()?)?;
    Some((major, parts.next().and_then(number).unwrap_or(0)))
}

fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|_| text.len() <= 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_claude_has_its_row() {
        use ClaudeThinking::*;
        for (model, thinking, has_temperature, max_tokens) in [
            ("claude-3-haiku-20240307", Budget, true, 4_096),
            ("claude-3-5-sonnet-20241022", Budget, true, 8_192),
            ("claude-3-7-sonnet-latest", Budget, true, 32_000),
            ("claude-opus-4-20250514", Budget, true, 32_000),
            ("claude-sonnet-4-5-20250929", Budget, true, 32_000),
            ("claude-sonnet-4@20250514", Budget, true, 32_000),
            ("us.anthropic.claude-opus-4-6-v1", EffortOrBudget, true, 32_000),
            ("claude-opus-4-7", Effort, false, 32_000),
            ("anthropic/claude-opus-4.8", Effort, false, 32_000),
            ("claude-sonnet-5", EffortByDefault, false, 32_000),
            ("claude-opus-5-20260724", EffortByDefault, false, 32_000),
            ("claude-haiku-5-5", Always, false, 32_000),
            ("claude-fable-5", Always, false, 32_000),
            ("claude-mythos-preview", Always, false, 32_000),
            ("claude-opus-latest", Always, false, 32_000),
            ("claude-opus-7", Always, false, 32_000),
            ("my-claude-router", Budget, true, 8_192),
            ("deepseek-chat", Budget, true, 8_192),
            ("", Budget, true, 8_192),
        ] {
            let Claude { since: _, thinking: how, has_temperature: has, max_tokens: most } = claude(model);
            assert_eq!((how, has, most), (thinking, has_temperature, max_tokens), "{model}");
        }
    }

    #[test]
    fn every_gpt_that_reasons_has_its_row() {
        use ChatTools::*;
        for (model, expected) in [
            ("gpt-5.6-terra", Some(("none", WithEffortNone))),
            ("gpt-5.5", Some(("none", WithEffortNone))),
            ("gpt-6", Some(("none", WithEffortNone))),
            ("gpt-5.4-mini", Some(("none", WithoutEffort))),
            ("gpt-5.1", Some(("none", Accepted))),
            ("gpt-5-mini-2025-08-07", Some(("minimal", Accepted))),
            ("o3", Some(("low", Accepted))),
            ("o4-mini", Some(("low", Accepted))),
            ("gpt-5-pro", Some(("high", Accepted))),
            ("gpt-5.4-pro", Some(("medium", WithoutEffort))),
            ("gpt-5.1-codex-max", Some(("low", Accepted))),
            ("codex-mini-latest", Some(("low", Accepted))),
            ("ft:o4-mini-2025-04-16:x", Some(("low", Accepted))),
            ("gpt-4o-2024-08-06", None),
            ("gpt-4o-mini-2024-07-18", None),
            ("gpt-audio-2025-08-28", None),
            ("gpt-35-turbo", None),
            ("gpt-41-mini", None),
            ("gpt-5-chat-latest", None),
            ("gpt-4.1", None),
            ("gpt-4.5-preview-2025-02-27", None),
            ("gpt-4o", None),
            ("gpt-oss-120b", None),
            ("openai/gpt-5.6", None),
            ("o1lympus", None),
        ] {
            assert_eq!(gpt(model).map(|gpt| (gpt.least_effort, gpt.chat_tools)), expected, "{model}");
        }
    }

    #[test]
    fn every_gemini_has_its_way() {
        for (model, expected) in [
            ("gemini-2.5-flash", Gemini::Budget { can_be_none: true, least: 1, most: 24_576 }),
            ("gemini-2.5-flash-lite", Gemini::Budget { can_be_none: true, least: 512, most: 24_576 }),
            ("gemini-2.0-flash", Gemini::Never),
            ("gemma-3-27b-it", Gemini::Never),
            ("gemini-2.5-pro", Gemini::Budget { can_be_none: false, least: 128, most: 32_768 }),
            ("gemini-3-pro-preview", Gemini::Level { least: "low", has_medium: false }),
            ("models/gemini-3.1-pro-preview", Gemini::Level { least: "low", has_medium: true }),
            ("gemini-3.8-flash", Gemini::Level { least: "minimal", has_medium: true }),
            ("gemini-flash-latest", Gemini::Budget { can_be_none: true, least: 1, most: 24_576 }),
        ] {
            assert_eq!(gemini(model), expected, "{model}");
        }
    }
}
