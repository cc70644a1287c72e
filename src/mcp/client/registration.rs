//! A runtime that has the tools of servers.

use std::collections::HashSet;
use std::fmt;
use std::ptr;
use std::sync::{Arc, Weak};

use crate::error::BuildError;
use crate::mcp::client::definition::{Definition, Fingerprint, RefusedTool};
use crate::mcp::client::mcp_tool::McpTool;
use crate::mcp::client::names;
use crate::mcp::client::supervisor::{Supervisor, warnings};
use crate::name::Name;
use crate::name::{CALL_AGENT, FINISH, USER, is_reserved};
use crate::router::Router;
use crate::runtime::Runtime;
use crate::tool::Tool;
use crate::toolbox::Toolbox;

/// How often names are given anew when something else takes one in the same moment.
const ATTEMPTS: usize = 10;

/// One runtime, which this does not keep in memory. Dropped, the tools leave it.
pub(crate) struct Registration {
    router: Weak<Router>,
    links: Arc<[Arc<Supervisor>]>,
    /// What it has of ours, unless somebody took it away.
    has: Vec<RegisteredTool>,
    refused: Vec<RefusedTool>,
}

/// A tool of ours that a runtime has.
struct RegisteredTool {
    name: Name,
    fingerprint: Fingerprint,
    tool: Arc<dyn Tool>,
}

impl RegisteredTool {
    /// Whether it is this one that the runtime has under its name, and not one of somebody else's.
    fn is_in(&self, tools: &Toolbox) -> bool {
        tools.find(&self.name).is_some_and(|tool| ptr::addr_eq(Arc::as_ptr(tool), Arc::as_ptr(&self.tool)))
    }
}

impl Registration {
    pub(crate) fn join(runtime: &Runtime, links: &Arc<[Arc<Supervisor>]>) -> Result<Self, BuildError> {
        let (router, links) = (Arc::downgrade(&runtime.router), Arc::clone(links));
        let mut member = Self { router, links, has: Vec::new(), refused: Vec::new() };
        member.sync(runtime)?;
        Ok(member)
    }

    /// The runtime, if somebody still has it.
    pub(crate) fn runtime(&self) -> Option<Runtime> {
        self.router.upgrade().map(|router| Runtime { router })
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.router.strong_count() > 0
    }

    pub(crate) fn is(&self, runtime: &Runtime) -> bool {
        self.router.as_ptr() == Arc::as_ptr(&runtime.router)
    }

    /// Replaces the tools that its runtime has of ours by those that there are now.
    pub(crate) fn sync(&mut self, runtime: &Runtime) -> Result<(), BuildError> {
        let mut last = Ok(());
        for _ in 0..ATTEMPTS {
            last = self.try_sync(runtime);
            if last.is_ok() {
                break;
            }
        }
        last
    }

    fn try_sync(&mut self, runtime: &Runtime) -> Result<(), BuildError> {
        let tools: Vec<(Arc<Supervisor>, String, Arc<Definition>)> = self.links.iter().flat_map(approved).collect();
        let named: Vec<(&str, &str)> =
            tools.iter().map(|(_, server, definition)| (server.as_str(), definition.clean.as_str())).collect();
        let snapshot = runtime.router.registry().snapshot();
        let leaving = self.names(&snapshot.tools);
        let names = {
            let ours: HashSet<&Name> = leaving.iter().collect();
            let theirs = snapshot.tools.names().filter(|name| !ours.contains(name));
            let theirs: HashSet<&str> = theirs.map(|name| &**name).collect();
            names::offer(&named, |name| match () {
                () if theirs.contains(name) || is_reserved(name, &[CALL_AGENT, FINISH]) => Some("a tool"),
                () if snapshot.roster.contains(name) || is_reserved(name, &[USER]) => Some("an agent, actor or user"),
                () => None,
            })
        };
        let (mut joining, mut has, mut refused) = (Vec::<Arc<dyn Tool>>::new(), Vec::new(), Vec::new());
        for (name, (link, _, definition)) in names.into_iter().zip(tools) {
            match name {
                Ok(name) => {
                    let fingerprint = definition.fingerprint.clone();
                    let tool: Arc<dyn Tool> = Arc::new(McpTool { name: Arc::clone(&name), link, definition });
                    joining.push(Arc::clone(&tool));
                    has.push(RegisteredTool { name, fingerprint, tool });
                }
                Err(reason) => refused.push(RefusedTool::new(&definition.tool, reason).of(&link.name)),
            }
        }
        let is_same = |(before, now): (&RegisteredTool, &RegisteredTool)| {
            before.name == now.name && before.fingerprint == now.fingerprint
        };
        let is_there = leaving.len() == self.has.len() && has.len() == self.has.len();
        if !is_there || !self.has.iter().zip(&has).all(is_same) {
            runtime.replace_tools(&leaving, joining)?;
            self.has = has;
        }
        warnings(&self.refused, &refused).iter().for_each(|warning| tracing::warn!("{warning}"));
        self.refused = refused;
        Ok(())
    }

    /// The names of those tools that are there still.
    fn names(&self, tools: &Toolbox) -> Vec<Name> {
        self.has.iter().filter(|has| has.is_in(tools)).map(|has| Arc::clone(&has.name)).collect()
    }

    pub(crate) fn refused(&self) -> &[RefusedTool] {
        &self.refused
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime()
            && let Err(error) =
                runtime.replace_tools(&self.names(&runtime.router.registry().snapshot().tools), Vec::new())
        {
            tracing::warn!(%error, "tools of MCP servers could not leave a runtime");
        }
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.has.iter().map(|has| &has.name).collect();
        f.debug_struct("Member").field("has", &names).finish_non_exhaustive()
    }
}

/// A server's tools that may be offered, with its name as it stands in theirs.
fn approved(link: &Arc<Supervisor>) -> Vec<(Arc<Supervisor>, String, Arc<Definition>)> {
    let server = names::clean(&link.name).unwrap_or_default();
    let catalogue = link.catalogue();
    let tools = catalogue.tools().filter(|tool| catalogue.is_approved(tool));
    tools.map(|tool| (Arc::clone(link), server.clone(), Arc::clone(tool))).collect()
}
