//! The set `idol`: the actions of IDOL's servers (Content, Category, Community and the common ones), by what they do.
//!
//! The names are those of a published licence listing and of the product's public documents; which of them change
//! anything is read from their names and descriptions, for the vendor's own list (`sca.dat`) is not public. What is
//! missing here follows the setting `unknown`, and is a change unless the operator says otherwise.
//!
//! Changes are `once`: their repetition gives a second user, or an error.

use crate::action::rules::{Rule, RuleError};
use crate::action::{Class, Inject};

/// Cannot be queued for a child that is away: they name things by ids that it may not know yet.
const LIVE_CHANGES: &[&str] = &["CategoryMove", "CategorySetDetails"];

const CHANGES: &[&str] = &[
    "CategoryActivate",
    "CategoryBuild",
    "CategoryCopy",
    "CategoryDelete",
    "CategoryDeleteTraining",
    "CategoryImportFromCluster",
    "CategoryImportFromTopic",
    "CategoryImportFromXML",
    "CategoryReplace",
    "CategorySetPermissions",
    "CategorySetTNW",
    "CategorySetTraining",
    "CategorySyncCatDRE",
    "UserAdd",
    "UserCopy",
    "UserDelete",
    "UserEdit",
    "RoleAdd",
    "RoleAddPrivilege",
    "RoleAddRoleToRole",
    "RoleAddUserToRole",
    "RoleDelete",
    "RoleDeletePrivilege",
    "RoleRemovePrivilegeFromRole",
    "RoleRemoveRoleFromRole",
    "RoleRemoveUserFromRole",
    "RoleSetPrivilegeForRole",
    "AgentAdd",
    "AgentCopy",
    "AgentDelete",
    "AgentEdit",
    "AgentRetrain",
    "ProfileClear",
    "ProfileEdit",
    "ProfileUser",
    "ClusterSnapshot",
    "ClusterSGDataGen",
    "TaxonomyGenerate",
    "ScheduleDelete",
    "ExecuteSchedule",
    "TemplateUpload",
    "TemplateDelete",
    "Import",
    "Index",
    "TokenManagement",
];

/// Reads that ask for documents: with a parameter of [`STATE_PARAMETERS`] they change something.
const QUERIES: &[&str] = &[
    "Query",
    "Suggest*",
    "GetContent",
    "List",
    "GetQueryTagValues",
    "CategoryQuery",
    "CategorySuggestFrom*",
    "AgentGetResults",
    "ProfileGetResults",
];

/// `Delete` removes the documents that are found, the others keep the result under a token in that child.
const STATE_PARAMETERS: &[&str] = &["Delete", "State", "StoreState"];

const READS: &[&str] = &[
    "CategoryExportToXML",
    "CategoryFind",
    "CategoryGetDetails",
    "CategoryGetHierDetails",
    "CategoryGetTNW",
    "CategoryGetTraining",
    "UserRead",
    "UserReadAgentList",
    "UserReadUserList",
    // Community's action is `Security`; the long name follows its siblings.
    "Security",
    "UserSecurity",
    "RoleDoesUserHavePrivilege",
    "RoleGet*List",
    "RoleIsRoleInRole",
    "RoleUserGetRoleList",
    "AgentRead",
    "ProfileRead",
    "Term*",
    "GetTag*",
    "Highlight",
    "Summarize",
    "DetectLanguage",
    "Export",
    "TemplateList",
    "TemplateShow",
    // Common to all ACI servers.
    "GetChildren",
    "GetLicenseInfo",
    "GetPid",
    "GetRequestLog",
    "GetStatus",
    "GetVersion",
    "Help",
    "IndexerGetStatus",
    "LanguageSettings",
    "ShowPermissions",
    "ThreadStatus",
];

/// What `QueueInfo` may be asked to do without changing a queue.
const QUEUE_READS: &[&str] = &["getStatus", "queueStatus", "getActionParameters", "progress"];

pub(super) fn rules() -> Result<Vec<Rule>, RuleError> {
    let mut rules = Vec::new();
    for queries in QUERIES {
        let changing = Rule::aci(queries, Class::Change)?;
        rules.push(STATE_PARAMETERS.iter().try_fold(changing, |rule, parameter| rule.when_parameter(parameter))?);
        rules.push(Rule::aci(queries, Class::Read)?.with_safe(true));
    }
    for reads in READS {
        rules.push(Rule::aci(reads, Class::Read)?.with_safe(true));
    }
    // An asynchronous action runs on one child and its token means nothing to the others: sent to all, cancelling it
    // would fail on all but one, and look like children that diverge. So whatever changes a queue goes to the child whose
    // queue it is. It changes nothing that the children have in common, and is no change of the group.
    let changing = Rule::aci("QueueInfo", Class::Read)?.for_issuer_only();
    rules.push(changing.when_parameter_is_none_of("QueueAction", QUEUE_READS)?);
    rules.push(Rule::aci("QueueInfo", Class::Read)?.with_safe(true));
    for live_change in LIVE_CHANGES {
        rules.push(Rule::aci(live_change, Class::LiveChange)?);
    }
    // Without `Category` the server makes up a random id of this many digits.
    let inject = Inject { parameter: "Category".into(), digits: 18 };
    rules.push(Rule::aci("CategoryCreate", Class::Change)?.with_inject(inject)?);
    for change in CHANGES {
        rules.push(Rule::aci(change, Class::Change)?);
    }
    Ok(rules)
}
