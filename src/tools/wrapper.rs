//! The interface of tools that wrap other tools: [`ToolWrapper`]. A wrapper runs the tool inside it through an
//! [`InnerTool`], which alone decides on which thread that happens.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::content::Content;
use crate::name::Name;
use crate::panics::catch_panic;
use crate::tool_call::{Arguments, ToolError, ToolSpec};
use crate::tool_interface::{Blocking, Tool, ToolContext};
use crate::tool_run::run_tool;

/// A tool around another tool. Every wrapper is a [`Tool`] that has the specification of the inner tool, checks what it
/// checks, and runs it on the threads that it needs, so no wrapper can forget that.
///
/// ```
/// use agentouto::tools::{InnerTool, ToolWrapper};
/// use agentouto::{Arguments, BoxFuture, Content, Tool, ToolContext, ToolError};
///
/// /// A tool whose result is at most 1,000 characters long.
/// struct Short(InnerTool);
///
/// impl ToolWrapper for Short {
///     fn inner(&self) -> &InnerTool {
///         &self.0
///     }
///
///     fn run(&self, arguments: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
///         Box::pin(async move {
///             let content = self.0.call(arguments, context).await?;
///             Ok(content.text.chars().take(1_000).collect::<String>().into())
///         })
///     }
/// }
///
/// fn shortened(tool: impl Tool) -> impl Tool {
///     Short(InnerTool::new(tool))
/// }
/// # let _ = shortened(agentouto::tool::function("x", "", |_: agentouto::tool::NoArguments| async { "x" }));
/// ```
pub trait ToolWrapper: Send + Sync + 'static {
    /// The tool inside.
    fn inner(&self) -> &InnerTool;

    /// Carries out one call, as [`Tool::call`]. It is polled on the async threads, so it must not block; the inner tool
    /// may.
    fn run(&self, arguments: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>>;

    /// Returns the description for models, as [`Tool::spec`]. Default: that of the inner tool.
    fn spec(&self) -> ToolSpec {
        self.inner().spec()
    }

    /// Checks the arguments, as [`Tool::check`]. Default: the inner tool checks them.
    ///
    /// # Errors
    ///
    /// What is wrong with them, for the model.
    fn check(&self, arguments: &Arguments) -> Result<(), ToolError> {
        self.inner().check(arguments)
    }

    /// Checks the caller, as [`Tool::authorize`]. Default: the inner tool checks it.
    ///
    /// # Errors
    ///
    /// Why this caller may not use the tool, for the model.
    fn authorize(&self, context: &ToolContext) -> Result<(), ToolError> {
        self.inner().authorize(context)
    }
}

impl<W: ToolWrapper> Tool for W {
    fn spec(&self) -> ToolSpec {
        ToolWrapper::spec(self)
    }

    fn call(&self, arguments: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
        self.run(arguments, context)
    }

    fn check(&self, arguments: &Arguments) -> Result<(), ToolError> {
        ToolWrapper::check(self, arguments)
    }

    fn authorize(&self, context: &ToolContext) -> Result<(), ToolError> {
        ToolWrapper::authorize(self, context)
    }

    /// Never: an [`InnerTool`] that blocks goes to a thread by itself, so a wrapper that waits keeps none.
    fn blocking(&self) -> Blocking {
        Blocking::Never
    }
}

/// The tool inside a [`ToolWrapper`]. Cheap to clone. It is no [`Tool`] itself: the only way to run it is
/// [`call`](Self::call).
#[derive(Clone)]
pub struct InnerTool {
    tool: Arc<dyn Tool>,
    name: Name,
}

impl InnerTool {
    /// A tool that is wrapped.
    pub fn new(tool: impl Tool) -> Self {
        Self { name: tool.spec().name, tool: Arc::new(tool) }
    }

    /// Runs the tool: here, or on threads that it may block. A panic becomes an error, also one in a drop when the
    /// future is dropped.
    ///
    /// # Errors
    ///
    /// The error of the tool.
    pub async fn call(&self, arguments: Arguments, context: ToolContext) -> Result<Content, ToolError> {
        let running = catch_panic(run_tool(&self.tool, arguments, context));
        running.await.unwrap_or_else(|panic| Err(format!("panicked: {panic}").into()))
    }

    /// The name by which models call the tool.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Returns the description for models.
    #[must_use]
    pub fn spec(&self) -> ToolSpec {
        self.tool.spec()
    }

    /// Checks arguments, see [`Tool::check`].
    ///
    /// # Errors
    ///
    /// What is wrong with them, for the model.
    pub fn check(&self, arguments: &Arguments) -> Result<(), ToolError> {
        self.tool.check(arguments)
    }

    /// Checks a caller, see [`Tool::authorize`].
    ///
    /// # Errors
    ///
    /// Why this caller may not use the tool, for the model.
    pub fn authorize(&self, context: &ToolContext) -> Result<(), ToolError> {
        self.tool.authorize(context)
    }
}

impl fmt::Debug for InnerTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InnerTool").field(&self.name).finish()
    }
}

macro_rules! forward_to_the_tool_inside {
    ($($generics:tt)*) => {
        $($generics)* {
            fn spec(&self) -> ToolSpec {
                (**self).spec()
            }

            fn call(&self, arguments: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
                (**self).call(arguments, context)
            }

            fn check(&self, arguments: &Arguments) -> Result<(), ToolError> {
                (**self).check(arguments)
            }

            fn authorize(&self, context: &ToolContext) -> Result<(), ToolError> {
                (**self).authorize(context)
            }

            fn blocking(&self) -> Blocking {
                (**self).blocking()
            }
        }
    };
}

forward_to_the_tool_inside!(impl<T: Tool + ?Sized> Tool for Arc<T>);
forward_to_the_tool_inside!(impl Tool for Box<dyn Tool>);
