import {
  DeploymentId,
  fieldIssues,
  issueText,
  ListedDeployment,
  Member,
  type NodeMethod,
} from "@tenure/protocol";

/**
 * A list without the items that cannot be parsed, so that one bad row of any server does not stop what this node does
 * with the others. A deployment that was left out is named in `skipped`: it must not look deleted.
 */
export function readable(method: NodeMethod, result: unknown): unknown {
  if (method === "deployment.list") return readableDeployments(result);
  if (method === "member.list") return readableMembers(result);
  return result;
}

function readableDeployments(result: unknown): unknown {
  const { items, skipped } = (result ?? {}) as { items?: unknown; skipped?: unknown };
  if (!Array.isArray(items)) return result;
  const named = Array.isArray(skipped) ? [...skipped] : [];
  const read = items.filter((item) => {
    const parsed = ListedDeployment.safeParse(item);
    if (parsed.success) return true;
    const id = DeploymentId.safeParse((item as { id?: unknown } | null)?.id);
    const reason = issueText(fieldIssues(parsed.error));
    if (id.success) named.push({ id: id.data, reason });
    return false;
  });
  return read.length === items.length
    ? result
    : { ...(result as object), items: read, skipped: named };
}

function readableMembers(result: unknown): unknown {
  const { members } = (result ?? {}) as { members?: unknown };
  if (!Array.isArray(members)) return result;
  const read = members.filter((member) => Member.safeParse(member).success);
  return { ...(result as object), members: read };
}
