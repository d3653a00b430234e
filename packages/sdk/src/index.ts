export { TenureError } from "@tenure/protocol";
export {
  type Admin,
  type AdminOptions,
  type CallInput,
  type CallReply,
  createAdmin,
  ROUTES,
} from "./admin.ts";
