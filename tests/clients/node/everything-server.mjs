// A full-featured server that has everything the conformance suite's server scenarios ask for.
import { InMemoryEventStore } from '@modelcontextprotocol/sdk/examples/shared/inMemoryEventStore.js';
import { newEverythingServer } from './everything.mjs';
import { serve } from './serve.mjs';

serve(() => newEverythingServer(), {
  // The event store makes the transport send priming events and lets clients resume a stream.
  transport: { eventStore: new InMemoryEventStore(), retryInterval: 100 },
});
