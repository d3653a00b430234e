export { TenureError } from "@tenure/protocol";
export {
  type Admin,
  type AdminOptions,
  type CallInput,
  type CallReply,
  createAdmin,
  ROUTES,
} from "./admin.ts";
export {
  type Chain,
  type ProbeReport,
  probeSigner,
  type ViemClient,
  viemChain,
} from "./chain.ts";
export {
  type AllocateOptions,
  type Broadcast,
  createNonces,
  type Held,
  NonceKept,
  type Nonces,
  type NoncesOptions,
} from "./nonces.ts";
