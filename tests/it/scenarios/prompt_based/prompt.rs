//! What a model is told of tools.

use agentouto::ToolSpec;
use agentouto::providers::prompt_tools::Template;
use serde::Deserialize;

use super::NoError;
use crate::scenarios::mismatches::Mismatches;
use crate::scenarios::tool::ScriptedTool;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Prompt {
    tools: Vec<ScriptedTool>,
    expect: Expect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    system: Option<String>,
    #[serde(rename = "no_error")]
    _no_error: Option<NoError>,
}

impl Prompt {
    pub(super) fn judge(self, found: &mut Mismatches) {
        let tools: Vec<ToolSpec> = self.tools.iter().map(ScriptedTool::spec).collect();
        found.equal_if_stated("system", self.expect.system.as_ref(), Some(&Template::korean().render(&tools)));
    }
}
