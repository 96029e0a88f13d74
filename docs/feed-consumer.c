// SPDX-License-Identifier: Apache-2.0
// Prints what the scheduler's feed says: cc -o feed-consumer feed-consumer.c -lzmq
// feed-consumer ADDRESS SERVER_PUBLIC_KEY PUBLIC_KEY SECRET_KEY [TOPIC]    (CURVE keys in Z85; without a topic: all)
#include <stdio.h>
#include <string.h>
#include <zmq.h>

int main(int argc, char **argv)
{
	void *feed = zmq_socket(zmq_ctx_new(), ZMQ_SUB);
	const char *wanted = argc > 5 ? argv[5] : "";
	char topic[32], text[65536];

	if (argc < 5 || zmq_setsockopt(feed, ZMQ_CURVE_SERVERKEY, argv[2], 41) || zmq_setsockopt(feed, ZMQ_CURVE_PUBLICKEY, argv[3], 41) ||
		zmq_setsockopt(feed, ZMQ_CURVE_SECRETKEY, argv[4], 41) || zmq_setsockopt(feed, ZMQ_SUBSCRIBE, wanted, strlen(wanted)) ||
		zmq_connect(feed, argv[1]))
		return 1;
	for (int n, m; (n = zmq_recv(feed, topic, sizeof(topic), 0)) >= 0 && (m = zmq_recv(feed, text, sizeof(text), 0)) >= 0; fflush(stdout))
		printf("%.*s %.*s\n", n, topic, m, text);
	return 1;
}
