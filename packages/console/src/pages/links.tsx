import { nodes } from "../data.ts";
import { shortId } from "../model/ids.ts";
import { visible } from "../model/text.ts";
import { Text } from "../parts/text.tsx";

/** Link to a node, by name if known. */
export function NodeLink({ address }: { address: string | undefined }) {
  if (!address) return <span class="quiet none">–</span>;
  const node = nodes.state.value.rows.get(address);
  return (
    <a class="clip" href={`/nodes/${encodeURIComponent(address)}`} title={visible(address)}>
      <Text>{node?.name || shortId(address)}</Text>
    </a>
  );
}

export function JobLink({ id }: { id: string }) {
  return (
    <a class="mono" href={`/jobs/${id}`} title={id}>
      {shortId(id)}
    </a>
  );
}

export function TurnLink({ id }: { id: string }) {
  return (
    <a class="mono" href={`/turns/${id}`} title={id}>
      {shortId(id)}
    </a>
  );
}

/** Links to the jobs of a session; sessions have no page.*/
export function SessionLink({ id }: { id: string }) {
  return (
    <a class="mono" href={`/jobs?session=${id}`} title={id}>
      {shortId(id)}
    </a>
  );
}
