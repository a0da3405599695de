//! `antiphon explain`: asks a running antiphon what an action would cost on each child.

use std::process::ExitCode;

use clap::Args;

use super::{SocketArgs, dispatch};
use crate::control::{Command, Question};

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    #[command(flatten)]
    socket: SocketArgs,

    /// Only in this group; all groups, if left out
    #[arg(long, value_name = "NAME")]
    group: Option<String>,

    /// The action, as a request: METHOD TARGET BODY; without a method it is a GET
    #[arg(value_name = "ACTION")]
    action: String,
}

pub(super) fn run(args: ExplainArgs) -> ExitCode {
    dispatch::call(&args.socket, &Command::Explain(Question { request: args.action, group: args.group }))
}
