import type { CallResult, NodeMethod, NodeRegister } from "@tenure/protocol";
import { connectRawNode, type RawNode } from "@tenure/testing/fleet/raw-node";
import type { AttackedServer } from "./scene.ts";

/** A node-unit that registers with any description. Rejects with the server's error when it is not admitted. */
export interface RawUnit {
  readonly raw: RawNode;
  readonly address: string;
  call<M extends NodeMethod>(method: M, params: object): Promise<CallResult<M>>;
}

export async function rawUnit(
  server: AttackedServer,
  token: string,
  changes: Partial<NodeRegister> = {},
  key?: RawNode["key"],
): Promise<RawUnit> {
  const raw = await joinNode(server, token, changes, key);
  return {
    raw,
    address: raw.key.address,
    async call(method, params) {
      const { result, error } = await raw.call(method, params);
      if (error) throw new Error(`${error.code}: ${error.message}`);
      return result as CallResult<typeof method>;
    },
  };
}

/** Connects and registers with this token, as a node-unit unless `changes` says otherwise. */
export async function joinNode(
  server: AttackedServer,
  token: string,
  changes: Partial<NodeRegister> = {},
  key?: RawNode["key"],
): Promise<RawNode> {
  const raw = await connectRawNode({ url: server.url, ...(key && { key }) });
  const admitted = raw.register({ token: server.secretOf(token), ...changes });
  admitted.catch(() => {});
  await Promise.race([admitted, raw.closed.then(() => Promise.reject(new Error(refusalOf(raw))))]);
  return raw;
}

function refusalOf({ received }: RawNode): string {
  const [said] = received.filter((message) => message.type === "error");
  return said ? `${said.code}: ${said.message}` : "closed";
}
