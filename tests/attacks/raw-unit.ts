import type { CallResult, NodeMethod, NodeRegister } from "@tenure/protocol";
import { connectRawNode, type RawNode } from "../../packages/server/testing/raw-node.ts";
import type { AttackedServer } from "./scene.ts";

/** A node-unit that says of itself what it likes. */
export interface RawUnit {
  readonly raw: RawNode;
  readonly address: string;
  call<M extends NodeMethod>(method: M, params: object): Promise<CallResult<M>>;
}

export async function rawUnit(
  server: AttackedServer,
  token: string,
  changes: Partial<NodeRegister> = {},
): Promise<RawUnit> {
  const raw = await connectRawNode({ url: server.url });
  await raw.register({ token: server.secretOf(token), ...changes });
  let lastId = 0;
  return {
    raw,
    address: raw.key.address,
    async call(method, params) {
      const id = ++lastId;
      raw.send({ type: "request", id, method, params });
      const { result, error } = await raw.receive("response", (reply) => reply.id === id);
      if (error) throw new Error(`${error.code}: ${error.message}`);
      return result as CallResult<typeof method>;
    },
  };
}
