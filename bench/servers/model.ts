// The stub model in its own process; the argument is its options.
import { startChatCompletionsStub } from '../../packages/host/test/support/model-servers/chat-completions-stub.ts';

const { url } = await startChatCompletionsStub(JSON.parse(process.argv[2] ?? '{}'));
process.send?.({ url });
