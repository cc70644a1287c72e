//! Which models call functions themselves, and which are told of tools in their prompt.

use std::sync::{Arc, Mutex};

use agentouto::providers::prompt_tools::PromptTools;
use agentouto::{Agent, BoxFuture, Context, DeltaSink, Provider, ProviderError, Reply, Request, ToolSpec};
use futures_util::FutureExt as _;
use serde::Deserialize;
use serde_json::json;

use super::NoError;
use crate::scenarios::mismatches::Mismatches;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Factory {
    /// What a model says of itself, and what must be chosen for it.
    cases: Vec<(Declared, Mode)>,
    expect: Expect,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Declared {
    function_calling: Option<bool>,
    tools: usize,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
    /// The model is asked as it is.
    Native,
    /// The model is told of the tools in its prompt.
    Prompt,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    #[serde(rename = "no_error")]
    _no_error: Option<NoError>,
}

impl Factory {
    pub(super) fn judge(self, found: &mut Mismatches) {
        let Self { cases, expect: Expect { .. } } = self;
        found.holds(!cases.is_empty(), || "there are no cases".to_owned());
        for (declared, expected) in cases {
            match chosen(&declared) {
                Ok(chosen) => found.equal(&format!("mode of {declared:?}"), &expected, &chosen),
                Err(error) => found.add(format!("mode of {declared:?}: {error}")),
            }
        }
    }
}

/// Asks such a model once, and looks at what reaches it.
fn chosen(declared: &Declared) -> Result<Mode, String> {
    let asked = Arc::default();
    let model = Model { function_calling: declared.function_calling, asked: Arc::clone(&asked) };
    let request = request(declared.tools);
    let reply = PromptTools::around(model).reply(&request, &mut DeltaSink::none()).now_or_never();
    let reply = reply.ok_or("the model does not reply at once")?.map_err(|error| error.to_string())?;
    if reply != Reply::text("done") {
        return Err(format!("the reply is changed to {reply:?}"));
    }
    let mut asked = asked.lock().map_err(|error| error.to_string())?;
    let [seen] = &mut asked[..] else { return Err(format!("the model is asked {} times", asked.len())) };
    let (tools, seen_tools) = (&request.tools, &seen.tools);
    let (system, seen_system) = (request.context.system(), seen.context.system());
    let is_told = |tool: &ToolSpec| seen_system.contains(&*tool.name) && seen_system.contains(&*tool.description);
    if seen_tools == tools && seen_system == system {
        Ok(Mode::Native)
    } else if seen_tools.is_empty() && seen_system.contains(system) && tools.iter().all(is_told) {
        Ok(Mode::Prompt)
    } else {
        Err(format!("the model is offered {} tools, under the prompt {seen_system:?}", seen_tools.len()))
    }
}

fn request(tools: usize) -> Request {
    let tools = (0..tools).map(|nth| ToolSpec {
        name: format!("tool_{nth}").into(),
        description: format!("Does {nth} things.").into(),
        parameters: json!({"type": "object", "properties": {}}),
    });
    let context = Context::new("You are \"solo\".", Arc::default(), "go".into());
    Request::new(Agent::new("solo", "x").model("some-model"), context, tools.collect::<Vec<_>>())
}

/// A model that declares what it can, and keeps what it is asked.
struct Model {
    function_calling: Option<bool>,
    asked: Arc<Mutex<Vec<Request>>>,
}

impl Provider for Model {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        _: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        self.asked.lock().unwrap().push(request.clone());
        Box::pin(async { Ok(Reply::text("done")) })
    }

    fn function_calling(&self, _: &str) -> Option<bool> {
        self.function_calling
    }
}
