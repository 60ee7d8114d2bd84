// The model, in a process of its own; its options are the first argument.
import { startChatCompletionsStub } from '../../../packages/host/test/support/model-servers/chat-completions-stub.ts';

const { url } = await startChatCompletionsStub(JSON.parse(process.argv[2] ?? '{}'));
process.send?.({ url });
