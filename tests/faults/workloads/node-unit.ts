import { createHash, createPrivateKey, createPublicKey, randomUUID, sign } from "node:crypto";
import { encodeBase58 } from "@tenure/protocol";
import { createNodeConnection, type NodeConnection, type NodeDescription } from "@tenure/sdk";
import { FLEET_TOKEN } from "@tenure/testing/fleet/fleet-token";
import type { TestNodeKey } from "@tenure/testing/fleet/node-key";
import type { HistoryRecorder, RecordedEvent } from "@tenure/testing/history";
import { operationsOf } from "../checkers/operations.ts";
import type { Contact, Down, Registration } from "../checkers/terms.ts";

export interface RecordedNode {
  readonly address: string;
  readonly connection: NodeConnection;
}

/** A node-unit of the SDK that records when it was admitted and when its presence was renewed. */
export function startRecordedNode(options: {
  /** The process of the history, one per node. */
  name: string;
  key: TestNodeKey;
  urls: readonly string[];
  history: HistoryRecorder;
  describe?: Partial<NodeDescription>;
}): RecordedNode {
  const { name, key, history } = options;
  const bootId = randomUUID();
  const value = { address: key.address, boot_id: bootId };
  const connection = createNodeConnection({
    urls: options.urls,
    token: FLEET_TOKEN,
    key: { address: key.address, sign: async (bytes) => key.signBytes(bytes) },
    bootId,
    callTimeoutMs: 3_000,
    describe: () => ({ name, version: "0", tags: { node_unit: true }, ...options.describe }),
    on: {
      state(state) {
        if (state === "connecting")
          history.record({ process: name, type: "invoke", f: "register", value });
      },
      ready({ epoch, instance_id }) {
        const admitted = { ...value, epoch, instance_id };
        history.record({ process: name, type: "ok", f: "register", value: admitted });
      },
      down({ kind, wasReady }) {
        if (wasReady)
          history.record({ process: name, type: "info", f: "down", value: { ...value, kind } });
      },
      contact(lastContactMs) {
        const epoch = connection.registration?.epoch;
        const agoMs = performance.now() - lastContactMs;
        const heard = { address: key.address, epoch, ago_ms: agoMs };
        history.record({ process: name, type: "info", f: "contact", value: heard });
      },
    },
  });
  connection.start();
  return { address: key.address, connection };
}

interface Admitted {
  address: string;
  boot_id: string;
  epoch: number;
}

export function registrationsOf(events: readonly RecordedEvent[]): Registration[] {
  return operationsOf<unknown, Admitted>(events, "register")
    .filter(({ type }) => type === "ok")
    .map(({ answered: { address, boot_id, epoch }, startNs, endNs }) => ({
      address,
      bootId: boot_id,
      epoch,
      startNs,
      endNs,
    }));
}

/** Connections that a node saw end, other than by its own successor. */
export function downsOf(events: readonly RecordedEvent[]): Down[] {
  return events
    .filter(({ f, value }) => f === "down" && (value as { kind: string }).kind !== "replaced")
    .map(({ value, time }) => {
      const { address, boot_id } = value as { address: string; boot_id: string };
      return { address, bootId: boot_id, atNs: time };
    });
}

export function contactsOf(events: readonly RecordedEvent[]): Contact[] {
  return events
    .filter(({ f }) => f === "contact")
    .map(({ value, time }) => {
      const { address, epoch, ago_ms } = value as {
        address: string;
        epoch: number;
        ago_ms: number;
      };
      return { address, epoch, heardNs: time, sentNs: time - ago_ms * 1e6 };
    });
}

/** The same key for the same name: a node that is started again is the same node. */
export function keyOf(name: string): TestNodeKey {
  const seed = createHash("sha256").update(name).digest();
  const der = Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), seed]);
  const privateKey = createPrivateKey({ key: der, format: "der", type: "pkcs8" });
  const raw = createPublicKey(privateKey).export({ format: "der", type: "spki" }).subarray(-32);
  return { address: encodeBase58(raw), signBytes: (bytes) => sign(null, bytes, privateKey) };
}
