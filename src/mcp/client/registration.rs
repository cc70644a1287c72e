//! The registration of the servers' tools in one runtime.

use std::collections::HashSet;
use std::fmt;
use std::ptr;
use std::sync::{Arc, Weak};

use crate::error::BuildError;
use crate::mcp::client::definition::{Definition, Fingerprint, RefusedTool};
use crate::mcp::client::mcp_tool::McpTool;
use crate::mcp::client::names;
use crate::mcp::client::supervisor::{Supervisor, warnings};
use crate::name::{CALL_AGENT, FINISH, Name, USER, is_reserved};
use crate::router::Router;
use crate::runtime::Runtime;
use crate::tool_interface::Tool;
use crate::toolbox::Toolbox;

/// The number of attempts to find free names if something else takes one of them at the same moment.
const ATTEMPTS: usize = 10;

/// The tools of all servers in one runtime, which is held by a weak reference. Dropping it removes the tools.
pub(crate) struct Registration {
    router: Weak<Router>,
    supervisors: Arc<[Arc<Supervisor>]>,
    /// The tools that this registration has added, even if they were removed since.
    has: Vec<RegisteredTool>,
    refused: Vec<RefusedTool>,
}

/// A tool that this registration has added.
struct RegisteredTool {
    name: Name,
    fingerprint: Fingerprint,
    tool: Arc<dyn Tool>,
}

impl RegisteredTool {
    /// Returns whether the runtime has this very tool under its name, and not another one.
    fn is_in(&self, tools: &Toolbox) -> bool {
        tools.find(&self.name).is_some_and(|tool| ptr::addr_eq(Arc::as_ptr(tool), Arc::as_ptr(&self.tool)))
    }
}

impl Registration {
    pub(crate) fn join(runtime: &Runtime, supervisors: &Arc<[Arc<Supervisor>]>) -> Result<Self, BuildError> {
        let (router, supervisors) = (Arc::downgrade(&runtime.router), Arc::clone(supervisors));
        let mut registration = Self { router, supervisors, has: Vec::new(), refused: Vec::new() };
        registration.sync(runtime)?;
        Ok(registration)
    }

    /// The runtime, if it still exists.
    pub(crate) fn runtime(&self) -> Option<Runtime> {
        self.router.upgrade().map(|router| Runtime { router })
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.router.strong_count() > 0
    }

    pub(crate) fn is(&self, runtime: &Runtime) -> bool {
        self.router.as_ptr() == Arc::as_ptr(&runtime.router)
    }

    /// Replaces the tools that this registration has added with the current ones.
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
        let tools: Vec<(Arc<Supervisor>, String, Arc<Definition>)> =
            self.supervisors.iter().flat_map(approved).collect();
        let named: Vec<(&str, &str)> =
            tools.iter().map(|(_, server, definition)| (server.as_str(), definition.clean.as_str())).collect();
        let snapshot = runtime.router.registry.snapshot();
        let leaving = self.names(&snapshot.tools);
        let names = {
            let ours: HashSet<&Name> = leaving.iter().collect();
            let theirs = snapshot.tools.names().filter(|name| !ours.contains(name));
            let theirs: HashSet<&str> = theirs.map(|name| &**name).collect();
            names::offer(&named, |name| {
                if theirs.contains(name) || is_reserved(name, &[CALL_AGENT, FINISH]) {
                    Some("a tool")
                } else if snapshot.roster.find(name).is_some() || is_reserved(name, &[USER]) {
                    Some("an agent, actor or user")
                } else {
                    None
                }
            })
        };
        let (mut joining, mut has, mut refused) = (Vec::<Arc<dyn Tool>>::new(), Vec::new(), Vec::new());
        for (name, (supervisor, _, definition)) in names.into_iter().zip(tools) {
            match name {
                Ok(name) => {
                    let fingerprint = definition.fingerprint.clone();
                    let (server, of_server) = (Arc::clone(&supervisor), Arc::clone(&definition.tool));
                    let tool = McpTool { name: Arc::clone(&name), supervisor, definition };
                    let tool = server.server.settings.approval.around(&of_server, tool);
                    joining.push(Arc::clone(&tool));
                    has.push(RegisteredTool { name, fingerprint, tool });
                }
                Err(reason) => refused.push(RefusedTool::new(&definition.tool, reason).of(&supervisor.name)),
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

    /// The names of the added tools that the runtime still has.
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
                runtime.replace_tools(&self.names(&runtime.router.registry.snapshot().tools), Vec::new())
        {
            tracing::warn!(%error, "tools of MCP servers could not leave a runtime");
        }
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.has.iter().map(|has| &has.name).collect();
        f.debug_struct("Registration").field("has", &names).finish_non_exhaustive()
    }
}

/// The approved tools of a server, with the server's name in the form in which it becomes part of their names.
fn approved(supervisor: &Arc<Supervisor>) -> Vec<(Arc<Supervisor>, String, Arc<Definition>)> {
    let server = names::clean(&supervisor.name).unwrap_or_default();
    let catalogue = supervisor.catalogue();
    let tools = catalogue.tools().filter(|tool| catalogue.is_approved(tool));
    tools.map(|tool| (Arc::clone(supervisor), server.clone(), Arc::clone(tool))).collect()
}
