import type { SignerView } from "@tenure/protocol";
import { useMemo } from "preact/hooks";
import { call } from "../api.ts";
import { now } from "../clock.ts";
import { shortId } from "../model/ids.ts";
import { visible } from "../model/text.ts";
import { Badge } from "../parts/badge.tsx";
import { Choices, chosen, Filters, sought } from "../parts/filter.tsx";
import { Id } from "../parts/id.tsx";
import { type Column, List } from "../parts/list.tsx";
import { Page } from "../parts/page.tsx";
import { Empty, Failure, Loading, Stale } from "../parts/states.tsx";
import { Text } from "../parts/text.tsx";
import { Time } from "../parts/time.tsx";
import { createResource } from "../resource.ts";

const SIGNERS_MAX = 5_000;

export const signers = createResource({ read: readSigners, everyMs: 5_000, topics: ["signers"] });

async function readSigners(): Promise<SignerView[]> {
  const found: SignerView[] = [];
  let cursor: string | undefined;
  do {
    const page = await call("listSigners", { query: { limit: 500, cursor } });
    found.push(...page.items);
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined && found.length < SIGNERS_MAX);
  return found;
}

/** Signers with their lease owners and open nonces. */
export function SignersPage() {
  const { value, error } = signers.use();
  const state = chosen("state");
  const query = sought();
  const shown = useMemo(
    () =>
      (value ?? []).filter(
        (signer) =>
          (state === "" || signer.quarantined > 0) &&
          [signer.signer, signer.owner_node].some((text) => text?.toLowerCase().includes(query)),
      ),
    [value, state, query],
  );
  return (
    <Page title="Signers" sub="Each nonce of an account has one holder at a time.">
      <Stale error={value && error} />
      <Filters placeholder="Signer, owner">
        <Choices
          name="state"
          label="State"
          of={[
            { value: "", label: "All", ...(value && { count: value.length }) },
            {
              value: "quarantined",
              label: "Quarantined",
              ...(value && { count: value.filter(({ quarantined }) => quarantined > 0).length }),
            },
          ]}
        />
      </Filters>
      {value ? (
        <List
          label="Signers"
          columns={COLUMNS}
          rows={shown}
          keyOf={({ signer }) => signer}
          sortBy={{ column: 1 }}
          empty={
            value.length === 0 ? (
              <Empty title="No signers yet">
                <p>A signer appears with its first nonce:</p>
                <pre class="code">npx tenure signer allocate eip155:1:0x5290…9ee7</pre>
              </Empty>
            ) : (
              <Empty title="No signer matches this filter" />
            )
          }
        />
      ) : error ? (
        <Failure error={error} retry={signers.refresh} />
      ) : (
        <Loading what="signers" />
      )}
    </Page>
  );
}

/** A lease is released between uses, so a signer without an owner is healthy. */
export function LeaseBadge({ signer }: { signer: SignerView }) {
  if (!signer.owner_node)
    return <Badge tone="idle" word="no owner" detail="the lease is given back between uses" />;
  const isLive = signer.expires_at !== null && Date.parse(signer.expires_at) > now.value;
  return isLive ? <Badge tone="good" word="leased" /> : <Badge tone="warn" word="lease ran out" />;
}

const COLUMNS: Column<SignerView>[] = [
  {
    title: "Lease",
    width: "124px",
    narrow: "side",
    sort: ({ owner_node }) => owner_node ?? "",
    cell: (signer) => <LeaseBadge signer={signer} />,
  },
  {
    title: "Signer",
    width: "minmax(0, 1.6fr)",
    narrow: "title",
    sort: ({ signer }) => signer,
    cell: ({ signer }) => (
      <a
        class="row-link mono"
        href={`/signers/${encodeURIComponent(signer)}`}
        title={visible(signer)}
      >
        <Text>{shortId(signer)}</Text>
      </a>
    ),
  },
  {
    title: "Owner",
    width: "minmax(0, 1fr)",
    cell: ({ owner_node }) =>
      owner_node ? <Id of={owner_node} /> : <span class="quiet none">–</span>,
  },
  {
    title: "Token",
    width: "72px",
    isNumber: true,
    sort: ({ fencing_token }) => fencing_token,
    cell: ({ fencing_token }) => fencing_token,
  },
  {
    title: "Next",
    width: "84px",
    isNumber: true,
    narrow: "line",
    sort: ({ next_nonce }) => next_nonce,
    cell: ({ next_nonce }) => <span title="next number">{next_nonce.toLocaleString("en")}</span>,
  },
  {
    title: "Held",
    width: "64px",
    isNumber: true,
    sort: ({ held }) => held,
    cell: ({ held }) => held,
  },
  {
    title: "Gaps",
    width: "64px",
    isNumber: true,
    sort: ({ released }) => released,
    cell: ({ released }) => <span title="released, free for the next one">{released}</span>,
  },
  {
    title: "Quarantined",
    width: "104px",
    isNumber: true,
    narrow: "line",
    sort: ({ quarantined }) => -quarantined,
    cell: ({ quarantined }) =>
      quarantined > 0 ? (
        <strong class="tone-warn">{quarantined}</strong>
      ) : (
        <span class="quiet">0</span>
      ),
  },
  {
    title: "Used",
    width: "84px",
    isNumber: true,
    narrow: "line",
    sort: ({ updated_at }) => -Date.parse(updated_at),
    cell: ({ updated_at }) => <Time at={updated_at} />,
  },
];
