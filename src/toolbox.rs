//! The tools of a runtime, as one immutable value.

use std::sync::{Arc, OnceLock};

use crate::name::{Name, NameMap};
use crate::spelling::Spellings;
use crate::tool_call::ToolSpec;
use crate::tool_interface::Tool;

/// The tools of a runtime at one moment: every model is offered them and can call them.
#[derive(Default)]
pub(crate) struct Toolbox {
    tools: NameMap<SpecifiedTool>,
    builtin: Arc<[ToolSpec]>,
    /// Built when a model is first offered them, because many tools may be added before that.
    specs: OnceLock<Arc<[ToolSpec]>>,
    spellings: OnceLock<Spellings>,
}

/// A tool with the specification that it returned when it was added.
pub(crate) type SpecifiedTool = (Arc<ToolSpec>, Arc<dyn Tool>);

impl Toolbox {
    /// A toolbox with the built-in tools alone.
    pub(crate) fn new(builtin: impl IntoIterator<Item = ToolSpec>) -> Self {
        Self { builtin: builtin.into_iter().collect(), ..Self::default() }
    }

    /// Returns the toolbox without some tools and with others appended, and the number of tools removed.
    ///
    /// # Errors
    ///
    /// When a name is taken.
    pub(crate) fn replace(&self, leaving: &[Name], joining: &[SpecifiedTool]) -> Result<(Self, usize), Name> {
        let mut tools = self.tools.clone();
        let gone = leaving.iter().filter(|name| tools.remove(name)).count();
        for tool in joining {
            tools.insert(&tool.0.name, tool.clone())?;
        }
        Ok((Self { tools, builtin: Arc::clone(&self.builtin), ..Self::default() }, gone))
    }

    /// The specifications that a model is offered: of the tools in the order in which they were added, then of the
    /// built-in ones.
    pub(crate) fn specs(&self) -> &Arc<[ToolSpec]> {
        self.specs.get_or_init(|| self.all().cloned().collect())
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        self.all().map(|spec| &spec.name)
    }

    pub(crate) fn len(&self) -> usize {
        self.tools.len() + self.builtin.len()
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.find(name).map(|(_, tool)| tool)
    }

    /// Returns whether there is a tool of that name, built-in ones included.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.find(name).is_some() || self.builtin.iter().any(|spec| *spec.name == *name)
    }

    /// All names, or the nearest by spelling when there are many.
    pub(crate) fn nearest(&self, wanted: &str) -> Vec<Name> {
        self.spellings.get_or_init(|| Spellings::new(self.names())).nearest(wanted)
    }

    fn all(&self) -> impl Iterator<Item = &ToolSpec> {
        self.tools.iter().map(|(spec, _)| &**spec).chain(&*self.builtin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::{NoArguments, function};

    #[test]
    fn a_tool_that_joins_or_leaves_copies_no_other_and_no_list() {
        let tool = |name: &str| -> SpecifiedTool {
            let tool = function(name, "", |_: NoArguments| async {});
            (Arc::new(tool.spec()), Arc::new(tool))
        };
        let (one, two) = (tool("one"), tool("two"));
        let (before, _) = Toolbox::new([]).replace(&[], &[one.clone(), two.clone()]).unwrap();
        let (after, gone) = before.replace(&["two".into()], &[tool("three")]).unwrap();
        assert_eq!(gone, 1);
        assert!(Arc::ptr_eq(&after.tools.find("one").unwrap().0, &one.0));
        assert!(before.specs.get().is_none() && after.specs.get().is_none(), "no model was asked yet");
        assert!(Arc::ptr_eq(after.specs(), after.specs()));
        assert_eq!(after.names().map(|name| &**name).collect::<Vec<_>>(), ["one", "three"]);
        assert_eq!(before.names().map(|name| &**name).collect::<Vec<_>>(), ["one", "two"]);
    }
}
