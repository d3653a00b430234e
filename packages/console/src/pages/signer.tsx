import type { NonceRecord, NonceStatus, SignerView } from "@tenure/protocol";
import { useMemo, useState } from "preact/hooks";
import { call } from "../api.ts";
import { shortId } from "../model/ids.ts";
import { nonceTone } from "../model/nonce.ts";
import { visible } from "../model/text.ts";
import { Action } from "../parts/action.tsx";
import { Badge } from "../parts/badge.tsx";
import { RadioField, TextField } from "../parts/fields.tsx";
import { Choices, chosen } from "../parts/filter.tsx";
import { Id } from "../parts/id.tsx";
import { type Column, List } from "../parts/list.tsx";
import { Card, Facts, Page } from "../parts/page.tsx";
import { Empty, Failure, Loading, Stale } from "../parts/states.tsx";
import { Text } from "../parts/text.tsx";
import { Time } from "../parts/time.tsx";
import { createResource } from "../resource.ts";
import { LeaseBadge } from "./signers.tsx";

const BACK = { href: "/signers", label: "Signers" };
const NONCES_MAX = 2_000;

export function SignerPage({ signer }: { signer: string }) {
  const resource = useMemo(
    () =>
      createResource({
        read: () => call("readSigner", { params: { signer } }),
        everyMs: 3_000,
        topics: ["signers"],
      }),
    [signer],
  );
  const nonces = useMemo(
    () => createResource({ read: () => readNonces(signer), everyMs: 3_000 }),
    [signer],
  );
  const { value, error } = resource.use();
  if (!value) {
    return (
      <Page title="Signer" back={BACK}>
        {error ? <Failure error={error} retry={resource.refresh} /> : <Loading what="the signer" />}
      </Page>
    );
  }
  const refresh = async () => {
    await Promise.all([resource.refresh(), nonces.refresh()]);
  };
  return (
    <Page
      title={shortId(signer)}
      heading={<span class="mono">{visible(shortId(signer))}</span>}
      back={BACK}
      sub={
        <>
          <LeaseBadge signer={value} /> <Id of={signer} whole />
        </>
      }
      actions={<Raise signer={value} onDone={refresh} />}
    >
      <Stale error={error} />
      <Card>
        <Facts of={factsOf(value)} />
      </Card>
      <Nonces resource={nonces} signer={value} onDone={refresh} />
    </Page>
  );
}

async function readNonces(signer: string): Promise<NonceRecord[]> {
  const found: NonceRecord[] = [];
  let cursor: string | undefined;
  do {
    const page = await call("listNonces", { params: { signer }, query: { limit: 500, cursor } });
    found.push(...page.items);
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined && found.length < NONCES_MAX);
  return found;
}

function factsOf(view: SignerView): Parameters<typeof Facts>[0]["of"] {
  const none = <span class="quiet none">–</span>;
  return [
    ["Tenant", view.tenant ? <Text key="t">{view.tenant}</Text> : none],
    ["Owner", view.owner_node ? <Id of={view.owner_node} /> : none],
    [
      "Fencing token",
      <span key="f" class="number">
        {view.fencing_token}
      </span>,
    ],
    ["Lease acquired", view.acquired_at ? <Time at={view.acquired_at} /> : none],
    ["Lease expires", view.owner_node && view.expires_at ? <Time at={view.expires_at} /> : none],
    [
      "Next nonce",
      <span key="n" class="number">
        {view.next_nonce.toLocaleString("en")}
      </span>,
    ],
    [
      "Held",
      <span key="h" class="number">
        {view.held}
      </span>,
    ],
    [
      "Gaps",
      <span key="g" class="number">
        {view.released}
      </span>,
    ],
    [
      "Quarantined",
      <span key="q" class={view.quarantined > 0 ? "number tone-warn" : "number"}>
        {view.quarantined}
      </span>,
    ],
  ];
}

const STATUSES: [NonceStatus | "", string][] = [
  ["", "All"],
  ["HELD", "Held"],
  ["QUARANTINED", "Quarantined"],
  ["RELEASED", "Released"],
  ["CONSUMED", "Consumed"],
];

function Nonces({
  resource,
  signer,
  onDone,
}: {
  resource: ReturnType<typeof createResource<NonceRecord[]>>;
  signer: SignerView;
  onDone: () => Promise<void>;
}) {
  const { value, error } = resource.use();
  const status = chosen("status");
  const newest = useMemo(() => [...(value ?? [])].sort((a, b) => b.nonce - a.nonce), [value]);
  const shown = useMemo(
    () => newest.filter((one) => status === "" || one.status === status),
    [newest, status],
  );
  const columns = useMemo(() => columnsWith(onDone), [signer.signer]);
  if (!value) {
    return (
      <Card>
        {error ? <Failure error={error} retry={resource.refresh} /> : <Loading what="nonces" />}
      </Card>
    );
  }
  return (
    <>
      <Card title="Newest nonces">
        <Strip of={newest} next={signer.next_nonce} />
      </Card>
      <div class="filters">
        <Choices
          name="status"
          label="Status"
          of={STATUSES.map(([value, label]) => ({
            value,
            label,
            count: newest.filter((one) => value === "" || one.status === value).length,
          }))}
        />
      </div>
      <List
        label="Nonces"
        columns={columns}
        rows={shown}
        keyOf={({ nonce }) => String(nonce)}
        empty={
          <Empty
            title={newest.length === 0 ? "No nonces allocated yet" : "No nonce has this status"}
          />
        }
      />
    </>
  );
}

const STRIP_MAX = 120;
const LETTERS: Record<NonceStatus, string> = {
  HELD: "H",
  CONSUMED: "·",
  RELEASED: "R",
  QUARANTINED: "Q",
};

/** The newest nonces in chain order: a gap blocks all nonces after it. */
function Strip({ of, next }: { of: NonceRecord[]; next: number }) {
  const cells = of.slice(0, STRIP_MAX).reverse();
  if (cells.length === 0) return <p class="quiet">None yet. The next nonce is {next}.</p>;
  return (
    <>
      <ol class="strip" aria-label="Newest nonces, oldest first">
        {cells.map(({ nonce, status }) => (
          <li
            key={nonce}
            class={`strip-cell tone-${nonceTone(status)}`}
            title={`${nonce}: ${status}`}
          >
            <span aria-hidden="true">{LETTERS[status]}</span>
            <span class="offscreen">
              {nonce} {status}
            </span>
          </li>
        ))}
        <li class="strip-next" title="next nonce">
          {next}
        </li>
      </ol>
      <p class="note">
        H held · R released, allocated next · Q quarantined, needs a decision · dot: used
      </p>
    </>
  );
}

/** Hold ids are hidden from viewers as zeros. Not imported as `HIDDEN_HOLD_ID`, which would load the schemas. */
function Hold({ id }: { id: string }) {
  return /^[0-]+$/.test(id) ? <span class="quiet none">–</span> : <Id of={id} />;
}

const columnsWith = (onDone: () => Promise<void>): Column<NonceRecord>[] => [
  {
    title: "Status",
    width: "132px",
    narrow: "side",
    cell: ({ status }) => <Badge tone={nonceTone(status)} word={status.toLowerCase()} />,
  },
  {
    title: "Nonce",
    width: "92px",
    narrow: "title",
    isNumber: true,
    sort: ({ nonce }) => nonce,
    cell: ({ nonce }) => <strong>{nonce}</strong>,
  },
  { title: "Hold", width: "130px", cell: ({ hold_id }) => <Hold id={hold_id} /> },
  { title: "Token", width: "70px", isNumber: true, cell: ({ fencing_token }) => fencing_token },
  {
    title: "Transaction or reason",
    width: "minmax(0, 1.4fr)",
    narrow: "line",
    cell: ({ tx_hash, reason }) =>
      tx_hash ? (
        <Id of={tx_hash} />
      ) : (
        <span class="clip">
          <Text>{reason ?? "–"}</Text>
        </span>
      ),
  },
  {
    title: "Held until",
    width: "96px",
    isNumber: true,
    cell: ({ status, locked_until }) =>
      status === "HELD" ? <Time at={locked_until} /> : <span class="quiet none">–</span>,
  },
  {
    title: "Changed",
    width: "90px",
    isNumber: true,
    narrow: "line",
    cell: ({ updated_at }) => <Time at={updated_at} />,
  },
  {
    title: "Action",
    width: "92px",
    narrow: "line",
    cell: (record) =>
      record.status === "QUARANTINED" && <Resolve record={record} onDone={onDone} />,
  },
];

function Resolve({ record, onDone }: { record: NonceRecord; onDone: () => Promise<void> }) {
  const { signer, nonce } = record;
  const [status, setStatus] = useState("");
  const [reason, setReason] = useState("");
  const [typed, setTyped] = useState("");
  return (
    <Action
      label="Resolve"
      small
      title={`Was nonce ${nonce} used?`}
      done={`Nonce ${nonce} is ${status.toLowerCase()}`}
      danger={status === "RELEASED"}
      isReady={status !== "" && reason.trim() !== "" && typed === String(nonce)}
      onDo={async () => {
        const body = { status: status as "CONSUMED" | "RELEASED", reason: reason.trim() };
        await call("resolveNonce", { params: { signer, nonce }, body });
        await onDone();
      }}
    >
      <p>
        Its holder timed out and may still broadcast it. Check the chain first. This cannot be
        undone.
      </p>
      <RadioField
        label="Status"
        value={status}
        onChange={setStatus}
        of={[
          {
            value: "CONSUMED",
            label: "Used",
            hint: "a transaction with this nonce is on the chain",
          },
          { value: "RELEASED", label: "Unused", hint: "it is allocated again next" },
        ]}
      />
      <TextField
        label="Evidence"
        value={reason}
        onChange={setReason}
        placeholder="not in the pool of any node, account nonce is 41"
      />
      <TextField label={`Type ${nonce} to confirm`} value={typed} onChange={setTyped} mono />
    </Action>
  );
}

function Raise({ signer, onDone }: { signer: SignerView; onDone: () => Promise<void> }) {
  const [next, setNext] = useState("");
  const isHigher = /^\d{1,15}$/.test(next) && Number(next) > signer.next_nonce;
  return (
    <Action
      label="Raise next nonce"
      title="Raise the next nonce"
      verb="Raise"
      done={`The next nonce is ${next}`}
      isReady={isHigher}
      onDo={async () => {
        await call("raiseSigner", {
          params: { signer: signer.signer },
          body: { next_nonce: Number(next), confirm: true },
        });
        await onDone();
      }}
    >
      <p>
        For an account that was used outside Tenure. Nonces from {signer.next_nonce} up to the new
        value are never allocated, and open nonces below it count as used. The value cannot be
        lowered again.
      </p>
      {isHigher && <p>This skips {Number(next) - signer.next_nonce} nonces.</p>}
      <TextField
        label="Next nonce"
        value={next}
        onChange={setNext}
        hint={`Above ${signer.next_nonce}.`}
        mono
      />
    </Action>
  );
}
